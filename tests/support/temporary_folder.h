// A folder for the files of a test.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

namespace penstock::test {

/// A directory that is removed at the end; in memory where that is possible, because writing to the disk takes time.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_((::access("/dev/shm", W_OK) == 0 ? std::filesystem::path("/dev/shm")
                                               : std::filesystem::temp_directory_path()) /
              ("penstock_" + name + "_" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string string() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline std::string bytes_of_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace penstock::test
