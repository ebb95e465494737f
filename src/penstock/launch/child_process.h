// Child processes that do not outlive this process. Inside this module only.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "penstock/launch/blocked_signals.h"

namespace penstock {

/// The signals by which a user, a terminal or a batch system ends a program.
inline constexpr int ending_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

/// The signals that this process takes in place of its children, and that of a child's end: `forwarded` without those
/// that this process ignores (because of nohup, for example).
std::vector<int> with_sigchld(const std::vector<int>& forwarded);

struct ChildSetup {
  int signal_at_our_end = SIGTERM;          // what the child receives when this process dies
  std::function<void()> prepare = nullptr;  // called in the child before it executes its program
};

/// Starts the program arguments[0], looked up in PATH, with `arguments` in a process group of its own, whose number is
/// that of the process, and with the signal mask that was there before `signals`. Call it on the main thread: the child
/// receives signal_at_our_end when the calling thread ends. Throws Failure if the program cannot be started.
pid_t start_child(const std::vector<std::string>& arguments, const BlockedSignals& signals, const ChildSetup& setup);

/// Kills all children of this process and waits for their ends. Where this process is a subreaper
/// (PR_SET_CHILD_SUBREAPER), these are all its descendants.
void kill_descendants();

/// The arguments as an argv array for exec; the pointers point into `arguments`.
std::vector<char*> as_arguments(const std::vector<std::string>& arguments);

}  // namespace penstock
