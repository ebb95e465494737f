// A file's bytes, all at once, or the reason why not. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

/// The bytes of the file at `path`. Throws DataError when it is missing, unreadable, no regular file, or has more than
/// `max_bytes`: nothing is allocated for a file that is refused. Thread-safe.
std::vector<std::uint8_t> read_whole_file(const std::string& path, std::size_t max_bytes);

}  // namespace penstock
