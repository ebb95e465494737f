#include "penstock/base/stop_signals.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "penstock/base/clock.h"

namespace penstock {
namespace {

constexpr std::array stop_signals = {SIGTERM, SIGINT, SIGUSR1};

// What the handler uses. A handler may run while its own thread holds any lock: these are free of locks.
std::atomic<int> first_signal{0};              // 0: none
std::atomic<std::int64_t> first_signal_ns{0};  // when it came; 0 until it is known
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

// What constructors and destructors use.
std::mutex installation_mutex;
int living = 0;
std::array<struct sigaction, stop_signals.size()> former_actions;

/// Whether a signal is a request of its own, after the first one.
bool is_second_request() {
  const std::int64_t first_ns = first_signal_ns.load();
  // 0: another thread handles the first signal at this moment.
  return first_ns != 0 && now_ns() - first_ns > std::chrono::nanoseconds(StopSignals::same_request).count();
}

/// Calls only what is allowed in handlers: clock_gettime (in now_ns), sigaction and raise are.
void take(int signal) {
  const int former_errno = errno;
  int none = 0;
  if (first_signal.compare_exchange_strong(none, signal)) {
    first_signal_ns.store(now_ns());
  } else if (is_second_request()) {
    struct sigaction by_default = {};
    by_default.sa_handler = SIG_DFL;
    ::sigaction(signal, &by_default, nullptr);
    ::raise(signal);  // pending until this handler returns
  }
  errno = former_errno;
}

}  // namespace

StopSignals::StopSignals() {
  const std::lock_guard lock(installation_mutex);
  if (living++ > 0) return;
  first_signal_ns.store(0);
  first_signal.store(0);
  struct sigaction taken = {};
  taken.sa_handler = take;
  taken.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < stop_signals.size(); ++i) {
    ::sigaction(stop_signals[i], nullptr, &former_actions[i]);
    if (former_actions[i].sa_handler != SIG_IGN) ::sigaction(stop_signals[i], &taken, nullptr);
  }
}

StopSignals::~StopSignals() {
  const std::lock_guard lock(installation_mutex);
  if (--living > 0) return;
  for (std::size_t i = 0; i < stop_signals.size(); ++i) ::sigaction(stop_signals[i], &former_actions[i], nullptr);
  first_signal.store(0);
}

std::optional<int> StopSignals::received() {
  const int signal = first_signal.load();
  return signal == 0 ? std::nullopt : std::optional(signal);
}

}  // namespace penstock
