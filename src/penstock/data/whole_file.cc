#include "penstock/data/whole_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "penstock/base/error.h"

namespace penstock {

std::vector<std::uint8_t> read_whole_file(const std::string& path, std::size_t max_bytes) {
  std::error_code code;
  const bool regular = std::filesystem::is_regular_file(path, code);
  require<DataError>(!code, "cannot open '", path, "': ", code.message());
  require<DataError>(regular, "cannot open '", path, "': it is not a regular file");
  const auto size = std::filesystem::file_size(path, code);
  require<DataError>(!code, "cannot open '", path, "': ", code.message());
  require<DataError>(size <= max_bytes, "'", path, "' has ", size, " bytes: more than the ", max_bytes,
                     " that are accepted");

  std::ifstream file(path, std::ios::binary);
  require<DataError>(file.good(), "cannot open '", path, "': ", std::strerror(errno));
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  require<DataError>(static_cast<std::size_t>(file.gcount()) == bytes.size(), "cannot read '", path, "': got ",
                     file.gcount(), " of its ", bytes.size(), " bytes");
  return bytes;
}

}  // namespace penstock
