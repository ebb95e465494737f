// A thread that writes checkpoints while training goes on. Free of LibTorch.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace penstock {

/// Runs one piece of work at a time on a thread of its own. Not thread-safe: one thread starts and waits.
class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  /// Waits for the work, unless it was abandoned. An error of it that no call has reported is lost: call wait() first.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Waits for the former work, as wait() does, then starts `work`, which may throw.
  void start(std::function<void()> work);
  /// Returns when no work is under way. Throws the exception of the last work, once. Calls `check` every 20 ms; if it
  /// throws, the wait ends, and the work goes on.
  void wait(const std::function<void()>& check = [] {});
  /// wait() if the work has ended; else nothing.
  void check();
  /// Whether no work is under way.
  bool has_ended() const;
  /// Leaves the work to its thread, which may be blocked indefinitely. It must own whatever it uses; it is destroyed on
  /// that thread when it has ended.
  void abandon();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool has_ended = true;     // guarded by mutex
    std::exception_ptr error;  // likewise
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();  // of the last work; shared with its thread
  std::thread thread_;
};

}  // namespace penstock
