#include "penstock/base/read_text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "penstock/base/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

void require_opened(bool is_open, const std::string& path, const TextLimits& limits) {
  const int reason = errno;
  std::error_code ignored;
  const bool is_folder = is_open && fs::is_directory(path, ignored);
  require<DataError>(limits.expected == nullptr || (is_open && !is_folder), path, ": cannot be opened; ",
                     limits.expected ? limits.expected : "", " is expected there");
  require<DataError>(is_open, path, ": cannot be opened: ", std::strerror(reason));
  require<DataError>(!is_folder, path, ": is a folder, and a file is expected there");
}

}  // namespace

std::string read_text(const std::string& path, const TextLimits& limits) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  require_opened(file.is_open(), path, limits);

  constexpr std::size_t piece = std::size_t{1} << 16;
  std::string text;
  std::uint64_t most = limits.most_bytes;
  std::error_code unknown_size;
  const std::uintmax_t size = fs::file_size(path, unknown_size);
  if (unknown_size) {
    most = std::min(most, most_unsized_bytes);
  } else {
    require<DataError>(size <= most, path, ": has ", size, " bytes: more than the ", most, " that are accepted");
    text.reserve(static_cast<std::size_t>(size) + piece);
  }
  while (file && text.size() <= most) {
    const std::size_t before = text.size();
    text.resize(before + piece);
    file.read(text.data() + before, static_cast<std::streamsize>(piece));
    text.resize(before + static_cast<std::size_t>(file.gcount()));
  }
  require<DataError>(!file.bad(), path, ": cannot be read: ", std::strerror(errno));
  require<DataError>(text.size() <= most, path, ": has more than the ", most, " bytes that are accepted");
  return text;
}

}  // namespace penstock
