#include "penstock/checkpoint/system_calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "penstock/base/clock.h"
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

namespace {

/// The path of an open file; "" if the system does not tell.
std::string path_of(int file) {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink(say("/proc/self/fd/", file).c_str(), path.data(), path.size());
  return {path.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

}  // namespace

std::optional<std::string> WatchedCalls::blocked(std::chrono::nanoseconds limit) const {
  const std::lock_guard lock(mutex_);
  for (const Call& call : calls_) {
    if (now_ns() - call.since_ns < limit.count()) continue;
    const std::string path = call.path.empty()       ? path_of(call.file)
                             : call.file == AT_FDCWD ? call.path
                                                     : path_of(call.file) + "/" + call.path;
    return say("'", path, "': ", call.name, " has not returned for ", to_s(limit.count()),
               " s (the deadline): the disk or its file system does not respond");
  }
  return std::nullopt;
}

template <class Function>
auto WatchedCalls::watch(const char* name, int file, const std::string& path, const Function& call) {
  std::list<Call> own{{name, file, path, now_ns()}};
  const auto place = own.begin();
  {
    const std::lock_guard lock(mutex_);
    calls_.splice(calls_.end(), own);
  }
  decltype(call()) result = -1;
  errno = ETIMEDOUT;
  if (!is_stopped_ || std::string_view(name) == "close") result = call();
  const int error_number = errno;
  {
    const std::lock_guard lock(mutex_);
    own.splice(own.end(), calls_, place);
  }
  own.clear();
  errno = error_number;
  return result;
}

int WatchedCalls::open(const std::string& path, int flags, mode_t mode) {
  return watch("open", AT_FDCWD, path, [&] { return inner_.open(path, flags, mode); });
}
ssize_t WatchedCalls::write(int file, const void* bytes, std::size_t count) {
  return watch("write", file, "", [&] { return inner_.write(file, bytes, count); });
}
ssize_t WatchedCalls::pread(int file, void* bytes, std::size_t count, std::uint64_t offset) {
  return watch("pread", file, "", [&] { return inner_.pread(file, bytes, count, offset); });
}
int WatchedCalls::start_writing(int file, std::uint64_t offset, std::uint64_t count) {
  return watch("sync_file_range", file, "", [&] { return inner_.start_writing(file, offset, count); });
}
int WatchedCalls::fsync(int file) {
  return watch("fsync", file, "", [&] { return inner_.fsync(file); });
}
int WatchedCalls::close(int file) {
  return watch("close", file, "", [&] { return inner_.close(file); });
}
int WatchedCalls::lock(int file) {
  return watch("flock", file, "", [&] { return inner_.lock(file); });
}
int WatchedCalls::mkdir(const std::string& path, mode_t mode) {
  return watch("mkdir", AT_FDCWD, path, [&] { return inner_.mkdir(path, mode); });
}
int WatchedCalls::rename(const std::string& from, const std::string& to) {
  return watch("rename", AT_FDCWD, from, [&] { return inner_.rename(from, to); });
}
int WatchedCalls::unlink_at(int directory, const std::string& name, int flags) {
  return watch("unlink", directory, name, [&] { return inner_.unlink_at(directory, name, flags); });
}
int WatchedCalls::list(int directory, std::vector<std::string>& names) {
  return watch("readdir", directory, "", [&] { return inner_.list(directory, names); });
}

std::string error_text_of(int error_number) {
  return say(std::generic_category().message(error_number), " (errno ", error_number, ")");
}

}  // namespace penstock
