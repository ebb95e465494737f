#include "penstock/launch/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "penstock/base/error.h"

namespace penstock {
namespace {

struct Parent {
  pid_t process;
  int complaints;  // the end of a pipe for the reason why a program cannot be started
};

/// Runs in the child: executes the program, or reports the error through the pipe.
[[noreturn]] void become(char* const* arguments, const BlockedSignals& signals, const ChildSetup& setup,
                         const Parent& parent) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, setup.signal_at_our_end);
  if (::getppid() != parent.process) std::_Exit(1);  // the parent died before PR_SET_PDEATHSIG took effect
  signals.restore();
  if (setup.prepare) setup.prepare();
  ::execvp(arguments[0], arguments);
  const int reason = errno;
  if (::write(parent.complaints, &reason, sizeof(reason)) < 0) std::_Exit(126);
  std::_Exit(127);
}

std::vector<pid_t> own_children() {
  std::ifstream file(say("/proc/self/task/", ::getpid(), "/children"));
  std::vector<pid_t> children;
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

}  // namespace

std::vector<int> with_sigchld(const std::vector<int>& forwarded) {
  std::vector<int> awaited{SIGCHLD};
  for (const int signal : forwarded) {
    struct sigaction action;
    if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) awaited.push_back(signal);
  }
  return awaited;
}

pid_t start_child(const std::vector<std::string>& arguments, const BlockedSignals& signals, const ChildSetup& setup) {
  std::vector<char*> pointers = as_arguments(arguments);
  int ends[2];
  require<Failure>(::pipe2(ends, O_CLOEXEC) == 0, "no pipe: ", std::strerror(errno));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(pointers.data(), signals, setup, {parent, ends[1]});
  const int fork_problem = errno;
  ::close(ends[1]);
  int reason = child < 0 ? fork_problem : 0;
  if (child > 0 && ::read(ends[0], &reason, sizeof(reason)) > 0) ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  require<Failure>(reason == 0, arguments[0], ": cannot be started: ", std::strerror(reason));
  ::setpgid(child, child);  // parent and child both call it, because either may run first
  return child;
}

// Orphans become children of a subreaper; killing one exposes its children.
void kill_descendants() {
  for (std::vector<pid_t> left = own_children(); !left.empty(); left = own_children())
    for (const pid_t child : left) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
}

std::vector<char*> as_arguments(const std::vector<std::string>& arguments) {
  std::vector<char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace penstock
