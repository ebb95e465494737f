// Reads whole text files from outside the program, of a limited size.
#pragma once

#include <cstdint>
#include <string>

#include "penstock/base/error.h"

namespace penstock {

/// The largest JSON file that is read. Reading takes up to 30 times a file's size in memory, because each value
/// becomes an object.
inline constexpr std::uint64_t most_json_bytes = std::uint64_t{64} << 20;
/// What is read of a pipe or a device, whose size is unknown, at most.
inline constexpr std::uint64_t most_unsized_bytes = std::uint64_t{16} << 20;

struct TextLimits {
  std::uint64_t most_bytes = most_json_bytes;  // and at most most_unsized_bytes where the size is unknown
  /// For the message about a path that cannot be opened, as "a schedule file"; null: the system's reason instead.
  const char* expected = nullptr;
};

/// The contents of the file or pipe at `path`. Throws DataError, which names the path and the reason, if it cannot be
/// read or is larger than the limit; that costs no memory beyond the limit, or none at all where the size is known.
std::string read_text(const std::string& path, const TextLimits& limits = {});

/// What `read` makes of the text of a file. The file's name precedes the message of a DataError that `read` throws.
template <class Read>
auto read_file(const std::string& path, Read&& read, const TextLimits& limits = {}) {
  const std::string text = read_text(path, limits);
  try {
    return read(text);
  } catch (const DataError& error) {
    throw DataError(path + ": " + error.what());
  }
}

}  // namespace penstock
