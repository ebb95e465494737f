// TensorBoard's event files, written without TensorBoard: records of events, each with named numbers. Torch-free.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// A number and its tag: "train/loss".
using Scalar = std::pair<std::string, double>;

/// CRC-32C (Castagnoli), rotated and shifted as TensorBoard's records have it.
std::uint32_t masked_crc32c(std::string_view bytes);

/// The bytes of one record: its length, the checksum of that, the event, the checksum of that.
std::string event_record(std::string_view event);
/// An Event message with `scalars` (as fp32, which is all that it holds) at `step`.
std::string scalar_event(double wall_time_s, std::int64_t step, const std::vector<Scalar>& scalars);

/// A file in a directory, which is made where it is missing. Records are whole and flushed: what was written so far can
/// be read while the training runs, and after it was killed. Not thread-safe.
class EventFile {
 public:
  /// Throws ConfigError where the file cannot be made.
  explicit EventFile(const std::string& directory);

  /// Throws Failure where it cannot be written.
  void add(std::int64_t step, const std::vector<Scalar>& scalars);
  const std::string& path() const { return path_; }

 private:
  void write(std::string_view event);

  std::string path_;
  std::ofstream out_;
};

}  // namespace penstock
