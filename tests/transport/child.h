// A child process for tests of what ranks notice of each other.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "penstock/transport/processes/peer_processes.h"

namespace penstock::test {

/// A child that lives until the test ends it.
class Child {
 public:
  Child() : number_(::fork()) {
    if (number_ == 0)
      while (true) ::pause();
  }
  ~Child() { end(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  processes::ProcessName name() const { return {processes::own_process_name().numbered_by, number_}; }
  /// Kills it, and waits until it has ended; its parent has not asked for its exit code yet.
  void kill() const {
    ::kill(number_, SIGKILL);
    siginfo_t ignored;
    ::waitid(P_PID, static_cast<id_t>(number_), &ignored, WEXITED | WNOWAIT);
  }
  void end() {
    if (number_ <= 0) return;
    ::kill(number_, SIGKILL);
    ::waitpid(number_, nullptr, 0);
    number_ = 0;
  }

 private:
  pid_t number_;
};

}  // namespace penstock::test
