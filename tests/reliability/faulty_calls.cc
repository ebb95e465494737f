// A library for LD_PRELOAD: lets one system call of a real program fail, or ends or stops the program at it. It counts
// the calls that concern one folder, over all threads; a tracer counts each thread by itself, and cannot write a part
// of what was asked for.
//
// The environment says which call:
//   FAULTY_FOLDER  absolute path; calls for paths in it, and for files opened there, are counted
//   FAULTY_LOG     a file: a line per call, "NUMBER NAME PATH"
//   FAULTY_AT      the number of the call, from 1; without it nothing fails
//   FAULTY_CALL, FAULTY_END  only calls with this name, only paths with this end, are counted; without them all
//   FAULTY_DO      kill, stop (SIGSTOP), hang (this thread alone), short (half of a write), or the number of an error
//   FAULTY_RANK    under mpirun or torchrun: the rank concerned
// Before a process ends, stops or hangs, it writes "fails at NANOSECONDS" of the steady clock to standard error.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <mutex>
#include <string>

namespace {

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Plan {
  std::string folder = variable("FAULTY_FOLDER"), log = variable("FAULTY_LOG"), action = variable("FAULTY_DO");
  std::string only = variable("FAULTY_CALL"), end = variable("FAULTY_END");
  long at = std::atol(variable("FAULTY_AT").c_str());
  bool is_active = !folder.empty() &&
                   (variable("FAULTY_RANK").empty() || variable("FAULTY_RANK") == variable("OMPI_COMM_WORLD_RANK") ||
                    variable("FAULTY_RANK") == variable("RANK"));
};

const Plan& plan() {
  static const Plan the_plan;
  return the_plan;
}

std::mutex mutex;
std::array<std::string, 1024> paths;  // of files in the folder, by descriptor; guarded by mutex
long calls = 0;                       // guarded by mutex

bool is_inside(const std::string& path) {
  const std::string& folder = plan().folder;
  return plan().is_active && path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

std::string absolute(const char* path) {
  if (*path == '/') return path;
  std::array<char, PATH_MAX> here{};
  return std::string(::getcwd(here.data(), here.size())) + "/" + path;
}

std::string path_of(int file) {
  const std::lock_guard lock(mutex);
  return file >= 0 && file < static_cast<int>(paths.size()) ? paths[static_cast<std::size_t>(file)] : "";
}

void opened(int file, const std::string& path) {
  const std::lock_guard lock(mutex);
  if (file >= 0 && file < static_cast<int>(paths.size())) paths[static_cast<std::size_t>(file)] = path;
}

enum class Fate { call, fail, shorten };

/// What happens to the next call. Does not return where it ends or hangs.
Fate fate_of(const char* name, const std::string& path) {
  if (!is_inside(path)) return Fate::call;
  if ((!plan().only.empty() && plan().only != name) || !path.ends_with(plan().end)) return Fate::call;
  std::unique_lock lock(mutex);
  ++calls;
  if (!plan().log.empty())
    if (std::FILE* log = std::fopen(plan().log.c_str(), "a")) {
      std::fprintf(log, "%ld %s %s\n", calls, name, path.c_str());
      std::fclose(log);
    }
  if (calls != plan().at) return Fate::call;
  const std::string& action = plan().action;
  if (action == "kill" || action == "stop" || action == "hang") {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    ::dprintf(STDERR_FILENO, "fails at %lld\n", static_cast<long long>(now.tv_sec) * 1000000000 + now.tv_nsec);
  }
  if (action == "kill") ::kill(::getpid(), SIGKILL);
  if (action == "stop") ::kill(::getpid(), SIGSTOP);
  if (action == "hang") {
    lock.unlock();
    while (true) ::pause();
  }
  if (action == "short") return Fate::shorten;
  if (action == "kill" || action == "stop") return Fate::call;
  errno = std::atoi(action.c_str());
  return Fate::fail;
}

int open_and_note(int file, const char* path) {
  if (is_inside(absolute(path))) opened(file, absolute(path));
  return file;
}

}  // namespace

extern "C" {

#define OPEN(name)                                                     \
  int name(const char* path, int flags, ...) {                         \
    va_list rest;                                                      \
    va_start(rest, flags);                                             \
    const mode_t mode = va_arg(rest, mode_t);                          \
    va_end(rest);                                                      \
    static auto* const real = next<int(const char*, int, ...)>(#name); \
    if (fate_of("open", absolute(path)) == Fate::fail) return -1;      \
    return open_and_note(real(path, flags, mode), path);               \
  }
OPEN(open)
OPEN(open64)
#undef OPEN

ssize_t write(int file, const void* bytes, size_t count) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  switch (fate_of("write", path_of(file))) {
    case Fate::fail: return -1;
    case Fate::shorten: return real(file, bytes, (count + 1) / 2);
    default: return real(file, bytes, count);
  }
}

int fsync(int file) {
  static auto* const real = next<int(int)>("fsync");
  return fate_of("fsync", path_of(file)) == Fate::fail ? -1 : real(file);
}

// As on Linux, a file is closed even if close() reports an error.
int close(int file) {
  static auto* const real = next<int(int)>("close");
  const bool fails = fate_of("close", path_of(file)) == Fate::fail;
  const int error_number = errno;
  opened(file, "");
  const int result = real(file);
  if (!fails) return result;
  errno = error_number;
  return -1;
}

int flock(int file, int operation) {
  static auto* const real = next<int(int, int)>("flock");
  return fate_of("flock", path_of(file)) == Fate::fail ? -1 : real(file, operation);
}

int mkdir(const char* path, mode_t mode) {
  static auto* const real = next<int(const char*, mode_t)>("mkdir");
  return fate_of("mkdir", absolute(path)) == Fate::fail ? -1 : real(path, mode);
}

int rename(const char* from, const char* to) {
  static auto* const real = next<int(const char*, const char*)>("rename");
  return fate_of("rename", absolute(from)) == Fate::fail ? -1 : real(from, to);
}

int unlinkat(int directory, const char* name, int flags) {
  static auto* const real = next<int(int, const char*, int)>("unlinkat");
  const std::string path = directory == AT_FDCWD ? absolute(name) : path_of(directory) + "/" + name;
  return fate_of("unlinkat", path) == Fate::fail ? -1 : real(directory, name, flags);
}

// Of a copy of a descriptor, which has no path here.
DIR* fdopendir(int directory) {
  static auto* const real = next<DIR*(int)>("fdopendir");
  const std::string link = "/proc/self/fd/" + std::to_string(directory);
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink(link.c_str(), path.data(), path.size());
  const std::string of_directory(path.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return fate_of("fdopendir", of_directory) == Fate::fail ? nullptr : real(directory);
}

}  // extern "C"
