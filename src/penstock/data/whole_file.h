// Reads a whole file. Free of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// The bytes of the file at `path`. Throws DataError if it is missing, unreadable, not a regular file, or larger than
/// `max_bytes`; the size is checked before memory is allocated. Thread-safe.
std::vector<std::uint8_t> read_whole_file(const std::string& path, std::size_t max_bytes);

}  // namespace penstock
