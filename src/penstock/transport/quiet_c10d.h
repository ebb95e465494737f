// Silences the log of c10d, which prints a dozen lines, most of them of its call stack, for each attempt that fails.
// Penstock says in one line what the matter is.
#pragma once

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include <c10/util/Logging.h>

namespace penstock {

/// LibTorch logs nothing below a fatal error, in the whole process, as long as an object exists; several may, in several
/// threads. Where the user has set TORCH_CPP_LOG_LEVEL, or the program has set the level meanwhile, it stays as it is.
class QuietC10d {
 public:
  QuietC10d() {
    const std::lock_guard lock(state().mutex);
    if (state().objects++ > 0 || std::getenv("TORCH_CPP_LOG_LEVEL")) return;
    state().former = level().exchange(fatal);
    state().is_muted = true;
  }
  ~QuietC10d() {
    const std::lock_guard lock(state().mutex);
    if (--state().objects > 0 || !std::exchange(state().is_muted, false)) return;
    int now = fatal;
    level().compare_exchange_strong(now, state().former);
  }
  QuietC10d(const QuietC10d&) = delete;
  QuietC10d& operator=(const QuietC10d&) = delete;

 private:
  static constexpr int fatal = 3;  // in the order of severities of c10, with glog and without
  // The level is one of the process, so its former value is too.
  struct State {
    std::mutex mutex;
    int objects = 0;
    int former = 0;
    bool is_muted = false;
  };
  static State& state() {
    static State* const state = new State;  // threads may outlive the end of main()
    return *state;
  }
  static std::atomic_ref<int> level() { return std::atomic_ref<int>(FLAGS_caffe2_log_level); }
};

}  // namespace penstock
