#include "penstock/cli/text_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "penstock/base/error.h"

namespace penstock {
namespace {

namespace fs = std::filesystem;

void write_through(const fs::path& path, std::string_view text, const std::string& shown) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  require<Failure>(file.good(), shown, ": cannot be written: ", std::strerror(errno));
}

/// The file to be written for `path`: follows symbolic links, which stay links.
fs::path place_for(const std::string& path) {
  std::error_code ignored;
  fs::path target = fs::weakly_canonical(fs::absolute(path, ignored), ignored);
  require<ConfigError>(!path.empty() && fs::is_directory(target.parent_path(), ignored), path,
                       ": there is no such folder; make it first");
  require<ConfigError>(!fs::is_directory(target, ignored), path, ": is a folder, and a file is to be written");
  return target;
}

/// Removes the temporary file unless it was renamed.
class Attempt {
 public:
  explicit Attempt(fs::path path) : path_(std::move(path)) {}
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

void require_place_for(const std::string& path) {
  if (path == "-") return;
  const fs::path target = place_for(path);
  std::error_code ignored;
  if (fs::exists(target, ignored) && !fs::is_regular_file(target, ignored)) {
    require<ConfigError>(::access(target.c_str(), W_OK) == 0, path, ": cannot be written: ", std::strerror(errno));
    return;
  }
  // Tries it as write_text does. Permissions are not enough: root has all of them, even on a read-only file system.
  const Attempt attempt(target.string() + ".partial-" + std::to_string(::getpid()));
  errno = 0;
  const std::ofstream file(attempt.path(), std::ios::binary | std::ios::trunc);
  require<ConfigError>(file.is_open(), path, ": cannot be written: ", std::strerror(errno),
                       "; choose another place, or get permission to write in its folder");
}

void write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::cout << text;
    return;
  }
  const fs::path target = place_for(path);
  std::error_code ignored;
  if (fs::exists(target, ignored) && !fs::is_regular_file(target, ignored)) return write_through(target, text, path);

  const Attempt attempt(target.string() + ".partial-" + std::to_string(::getpid()));
  write_through(attempt.path(), text, path);
  std::error_code problem;
  fs::rename(attempt.path(), target, problem);
  require<Failure>(!problem, path, ": cannot be written: ", problem.message());
}

}  // namespace penstock
