// Writes TensorBoard's event files, which are sequences of records, each an event with named numbers. Free of LibTorch.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock {

/// A tag, such as "train/loss", and a number.
using Scalar = std::pair<std::string, double>;

/// CRC-32C (Castagnoli) with the mask that TensorBoard's record format applies.
std::uint32_t masked_crc32c(std::string_view bytes);

/// The bytes of one record: length of the event, checksum of the length, event, checksum of the event.
std::string event_record(std::string_view event);
/// A serialised Event message with `scalars` (stored as fp32, the only type that it supports) at `step`.
std::string scalar_event(double wall_time_s, std::int64_t step, const std::vector<Scalar>& scalars);

/// A new event file in a directory. Every record is flushed as a whole, so the file can be read while the training runs
/// and after it was killed. Not thread-safe.
class EventFile {
 public:
  /// Creates the directory if it is missing, and the file. Throws ConfigError if the file cannot be created.
  explicit EventFile(const std::string& directory);

  /// Appends a record with the present time. Throws Failure if the file cannot be written.
  void add(std::int64_t step, const std::vector<Scalar>& scalars);
  const std::string& path() const { return path_; }

 private:
  void write(std::string_view event);

  std::string path_;
  std::ofstream out_;
};

}  // namespace penstock
