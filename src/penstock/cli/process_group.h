// A program that runs for us, and its end: nothing that it started outlives it, and it does not outlive us.
#pragma once

#include <string>
#include <vector>

namespace penstock {

/// How a program ended, and which signal asked it to, if any.
struct GroupEnd {
  int exit_code = 0;
  int signal = 0;   // the program died of; 0: none
  int told_to = 0;  // SIGINT, SIGTERM, SIGHUP or SIGQUIT that this process got meanwhile; 0: none

  int status() const { return signal != 0 ? 128 + signal : exit_code; }
};

/// Runs arguments[0], looked up in PATH, with those arguments, in a process group of its own, so that a terminal's Ctrl-C
/// reaches it once: through us. SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to it, SIGQUIT as SIGTERM;
/// those that this process ignores are left alone. When it is told to end and has not after `grace_s`, it is killed.
/// When it has ended, whatever it left behind is killed. When this process dies, it gets SIGTERM.
/// To be called from the main thread, with no other child processes around. Throws Failure when it cannot be started.
GroupEnd run_in_own_group(const std::vector<std::string>& arguments, int grace_s);

/// The arguments as exec wants them; they point into `arguments`.
std::vector<char*> as_arguments(const std::vector<std::string>& arguments);

/// The path of a program as a shell would find it; empty when there is none that may be executed.
std::string find_program(const std::string& name);

}  // namespace penstock
