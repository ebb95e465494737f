#include "penstock/checkpoint/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "penstock/base/error.h"

namespace penstock {

SystemCalls& SystemCalls::real() {
  static SystemCalls calls;  // without state
  return calls;
}

int SystemCalls::open(const std::string& path, int flags, mode_t mode) { return ::open(path.c_str(), flags, mode); }
ssize_t SystemCalls::write(int file, const void* bytes, std::size_t count) { return ::write(file, bytes, count); }
ssize_t SystemCalls::pread(int file, void* bytes, std::size_t count, std::uint64_t offset) {
  return ::pread(file, bytes, count, static_cast<off_t>(offset));
}
int SystemCalls::start_writing(int file, std::uint64_t offset, std::uint64_t count) {
  return ::sync_file_range(file, static_cast<off_t>(offset), static_cast<off_t>(count), SYNC_FILE_RANGE_WRITE);
}
int SystemCalls::fsync(int file) { return ::fsync(file); }
int SystemCalls::close(int file) { return ::close(file); }
int SystemCalls::lock(int file) { return ::flock(file, LOCK_EX | LOCK_NB); }
int SystemCalls::mkdir(const std::string& path, mode_t mode) { return ::mkdir(path.c_str(), mode); }
int SystemCalls::rename(const std::string& from, const std::string& to) { return ::rename(from.c_str(), to.c_str()); }
int SystemCalls::unlink_at(int directory, const std::string& name, int flags) {
  return ::unlinkat(directory, name.c_str(), flags);
}

int SystemCalls::list(int directory, std::vector<std::string>& names) {
  names.clear();
  const int own = ::dup(directory);  // closedir() closes it
  if (own < 0) return -1;
  DIR* const stream = ::fdopendir(own);
  if (stream == nullptr) return ::close(own), -1;
  int problem = 0;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(stream);
    if (entry == nullptr) {
      problem = errno;
      break;
    }
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(stream);
  errno = problem;
  return problem == 0 ? 0 : -1;
}

std::string error_text_of(int error_number) {
  return say(std::generic_category().message(error_number), " (errno ", error_number, ")");
}

}  // namespace penstock
