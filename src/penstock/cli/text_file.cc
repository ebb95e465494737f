#include "penstock/cli/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "penstock/base/error.h"
#include "penstock/checkpoint/durable_files.h"

namespace penstock::cli {
namespace {

namespace fs = std::filesystem;

/// Writes `text` and closes the file. `shown` is named by errors.
void write_into(OpenFile file, std::string_view text, const std::string& shown) {
  SystemCalls& calls = SystemCalls::real();
  const auto require_done = [&shown](bool is_done) {
    require<Failure>(is_done, shown, ": cannot be written: ", std::strerror(errno));
  };
  require_done(file.is_open());
  while (!text.empty()) {
    const ssize_t done = calls.write(file.number(), text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    require_done(done > 0);
    text.remove_prefix(static_cast<std::size_t>(done));
  }
  // An interrupted close() has closed the file.
  require_done(calls.close(file.release()) == 0 || errno == EINTR);
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

/// A temporary file beside `target`; removed at the end unless it was renamed.
class Attempt {
 public:
  explicit Attempt(const fs::path& target) : path_(target.string() + ".partial-" + std::to_string(::getpid())) {}
  Attempt(const Attempt&) = delete;
  Attempt& operator=(const Attempt&) = delete;
  ~Attempt() {
    if (is_made_) remove_file(SystemCalls::real(), path_);
  }
  /// Creates the file; errno is set if it is not open. Others can know its name: a file of theirs, or a link, is never
  /// written to.
  OpenFile create() {
    SystemCalls& calls = SystemCalls::real();
    remove_file(calls, path_);  // of a dead process of the same number
    errno = 0;
    OpenFile file = open_file(calls, path_, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, /*mode=*/0666);
    is_made_ = file.is_open();
    return file;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_made_ = false;
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
  Attempt attempt(target);
  require<ConfigError>(attempt.create().is_open(), path, ": cannot be written: ", std::strerror(errno),
                       "; choose another place, or get permission to write in its folder");
}

void write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::cout << text;
    return;
  }
  const fs::path target = place_for(path);
  std::error_code ignored;
  if (fs::exists(target, ignored) && !fs::is_regular_file(target, ignored))
    return write_into(open_file(SystemCalls::real(), target.string(), O_WRONLY), text, path);

  Attempt attempt(target);
  write_into(attempt.create(), text, path);
  std::error_code problem;
  fs::rename(attempt.path(), target, problem);
  require<Failure>(!problem, path, ": cannot be written: ", problem.message());
}

}  // namespace penstock::cli
