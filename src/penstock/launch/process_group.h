// Runs a child program in a process group of its own: no descendant outlives the child, and the child does not outlive
// this process.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace penstock {

/// How a program ended, and the terminating signal that this process received, if any.
struct GroupEnd {
  pid_t process = 0;
  int exit_code = 0;
  int signal = 0;     // that killed the program; 0: none
  int received = 0;   // the first SIGINT, SIGTERM, SIGHUP or SIGQUIT that this process received meanwhile; 0: none
  int forwarded = 0;  // the first SIGUSR1 or SIGUSR2

  int status() const { return signal != 0 ? 128 + signal : exit_code; }
};

/// How a program is ended after this process received a terminating signal, or when it is over.
struct EndingOptions {
  /// Sent to the program first; 0: the received signal itself, SIGQUIT as SIGTERM.
  int polite_signal = 0;
  /// The polite signal is sent again in this interval, for a program that was not ready for the first; 0: never.
  std::chrono::milliseconds repeat{0};
  /// The time after which a program that has not ended receives SIGTERM; a second terminating signal, half a second
  /// after the first or later, has the same effect at once. Without a polite signal the program is killed then.
  std::chrono::milliseconds grace{0};
  /// The time after that SIGTERM after which the program and its process group are killed.
  std::chrono::milliseconds grace_after_term{5000};
  /// Asked every 50 ms: whether all that matters of the program has ended. Then it is killed with its process group.
  /// None: never.
  std::function<bool()> is_over = {};
};

/// Runs the program arguments[0], looked up in PATH, with `arguments` and waits for its end. It runs in a process group
/// of its own, so that a terminal's Ctrl-C reaches it only once, through this process. SIGINT, SIGTERM, SIGHUP and
/// SIGQUIT end it as `how` describes, and from its end on this process, which should end too, ignores them; SIGUSR1 and
/// SIGUSR2 are forwarded to it; signals that this process ignores are not. After its end all its descendants are killed
/// and waited for. If this process dies, it receives SIGTERM. Call it on the main thread, without other child
/// processes. Throws Failure if the program cannot be started.
GroupEnd run_in_own_group(const std::vector<std::string>& arguments, const EndingOptions& how);

/// The path of an executable program as a shell would find it; empty if there is none.
std::string find_program(const std::string& name);

}  // namespace penstock
