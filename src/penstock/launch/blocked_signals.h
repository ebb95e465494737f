// Signals that wait until they are taken, instead of interrupting. Inside this module only.
#pragma once

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <vector>

namespace penstock {

/// While it lives, the calling thread, and every thread and process that it starts, leaves signals pending.
class BlockedSignals {
 public:
  /// Blocks all signals.
  BlockedSignals() {
    ::sigfillset(&set_);
    block();
  }
  explicit BlockedSignals(const std::vector<int>& signals) {
    ::sigemptyset(&set_);
    for (const int signal : signals) ::sigaddset(&set_, signal);
    block();
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { restore(); }

  /// Blocks what was blocked before: for a child process before it executes its program.
  void restore() const { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

  /// Takes a pending signal, and waits for one as long as that; 0 if there is none.
  int next(std::chrono::milliseconds wait) const {
    const timespec time{wait.count() / 1000, wait.count() % 1000 * 1'000'000};
    return std::max(0, ::sigtimedwait(&set_, nullptr, &time));
  }

 private:
  void block() { ::pthread_sigmask(SIG_BLOCK, &set_, &before_); }

  sigset_t set_;
  sigset_t before_;
};

}  // namespace penstock
