#include "penstock/launch/captured_run.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/launch/child_process.h"

namespace penstock {
namespace {

/// Starts the program with `output` as its standard output, and returns its process.
pid_t start_with_output(const std::vector<std::string>& command, int output) {
  std::vector<char*> arguments = as_arguments(command);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  pid_t program = 0;
  const int problem = ::posix_spawnp(&program, arguments[0], &files, &attributes, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::posix_spawnattr_destroy(&attributes);
  require<Failure>(problem == 0, arguments[0], ": cannot be started: ", std::strerror(problem));
  return program;
}

/// Waits until a file has something to read, or has ended; false if that has not come at `deadline_ns`.
bool wait_for(int file, std::int64_t deadline_ns) {
  while (true) {
    const std::int64_t left_ms = (deadline_ns - now_ns()) / 1'000'000;
    pollfd waiting{file, POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(std::clamp<std::int64_t>(left_ms, 0, 1 << 30)));
    if (ready >= 0 || errno != EINTR) return ready > 0;
  }
}

/// Reads until the end of the file; false if that has not come at `deadline_ns`.
bool read_until(int file, std::int64_t deadline_ns, std::string& text) {
  char piece[4096];
  while (true) {
    if (!wait_for(file, deadline_ns)) return false;
    const ssize_t size = ::read(file, piece, sizeof(piece));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return true;
    text.append(piece, static_cast<std::size_t>(size));
  }
}

/// A program that has closed its output need not have ended.
bool has_ended_at(pid_t program, std::int64_t deadline_ns) {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, program, 0));
  if (process < 0) return true;  // before Linux 5.3 its end can only be awaited without a limit
  const bool has_ended = wait_for(process, deadline_ns);
  ::close(process);
  return has_ended;
}

}  // namespace

CapturedRun run_captured(const std::vector<std::string>& arguments, std::chrono::milliseconds limit) {
  int ends[2];
  require<Failure>(::pipe2(ends, O_CLOEXEC) == 0, "no pipe: ", std::strerror(errno));
  CapturedRun run;
  try {
    const std::int64_t deadline_ns = now_ns() + std::chrono::nanoseconds(limit).count();
    const pid_t program = start_with_output(arguments, ends[1]);
    ::close(std::exchange(ends[1], -1));
    run.is_late = !read_until(ends[0], deadline_ns, run.output) || !has_ended_at(program, deadline_ns);
    if (run.is_late) ::kill(-program, SIGKILL);
    int status = 0;
    while (::waitpid(program, &status, 0) < 0 && errno == EINTR) {
    }
    run.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  } catch (...) {
    for (const int end : ends)
      if (end >= 0) ::close(end);
    throw;
  }
  ::close(ends[0]);
  return run;
}

}  // namespace penstock
