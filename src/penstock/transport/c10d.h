// How Penstock uses c10d: without its limits of time, with short reasons, and without its log, which prints a dozen
// lines, most of them of its call stack, for each attempt that fails.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

#include <c10/util/Logging.h>

namespace penstock::transport {

/// What c10d and Gloo wait for at most: longer than any job. Deadlines are kept outside of them, because theirs also
/// count the time in which a process is stopped, and Gloo's own default is the time that its connections had to come
/// about.
constexpr std::chrono::hours c10d_time_limit{24 * 365};

/// The reason in a text of c10d or Gloo, without its source line and its advice: "Connection closed by peer
/// [10.0.0.1]:1234".
inline std::string c10d_reason(const std::string& text) {
  const std::size_t begin = text.starts_with("[") && text.find("] ") != text.npos ? text.find("] ") + 2 : 0;
  const std::size_t end = std::min(text.find(". ", begin), text.find('\n', begin));
  return text.substr(begin, end == text.npos ? text.npos : end - begin);
}

/// LibTorch logs nothing below a fatal error, in the whole process, as long as an object exists; several may, in
/// several threads. Where the user has set TORCH_CPP_LOG_LEVEL, or the program has set the level meanwhile, it stays as
/// it is.
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

}  // namespace penstock::transport
