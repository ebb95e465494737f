// Runs a child program in a process group of its own: no descendant outlives the child, and the child does not outlive
// this process.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// How a program ended, and the terminating signal that this process received, if any.
struct GroupEnd {
  int exit_code = 0;
  int signal = 0;    // that killed the program; 0: none
  int received = 0;  // SIGINT, SIGTERM, SIGHUP or SIGQUIT that this process received meanwhile; 0: none

  int status() const { return signal != 0 ? 128 + signal : exit_code; }
};

/// Runs the program arguments[0], looked up in PATH, with `arguments` and waits for its end. It runs in a process group
/// of its own, so that a terminal's Ctrl-C reaches it only once, through this process. SIGINT, SIGTERM, SIGHUP, SIGUSR1
/// and SIGUSR2 are forwarded to it, and SIGQUIT as SIGTERM, except signals that this process ignores. `grace_s` seconds
/// after a terminating signal it is killed. After its end the rest of its process group is killed. If this process
/// dies, it receives SIGTERM. Call it on the main thread, without other child processes. Throws Failure if the program
/// cannot be started.
GroupEnd run_in_own_group(const std::vector<std::string>& arguments, int grace_s);

/// The arguments as an argv array for exec; the pointers point into `arguments`.
std::vector<char*> as_arguments(const std::vector<std::string>& arguments);

/// The path of an executable program as a shell would find it; empty if there is none.
std::string find_program(const std::string& name);

}  // namespace penstock
