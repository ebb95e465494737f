// A thread that writes checkpoints while training goes on. Free of LibTorch.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace penstock {

/// Runs one piece of work at a time on a thread of its own. Not thread-safe: one thread starts and waits.
class BackgroundWriter {
 public:
  BackgroundWriter() = default;
  /// Waits for the work. An error of it that no call has reported is lost: call wait() first.
  ~BackgroundWriter();
  BackgroundWriter(const BackgroundWriter&) = delete;
  BackgroundWriter& operator=(const BackgroundWriter&) = delete;

  /// Waits for the former work, as wait() does, then starts `work`, which may throw.
  void start(std::function<void()> work);
  /// Returns when no work is under way. Throws the exception of the last work, once.
  void wait();
  /// wait() if the work has ended; else nothing.
  void check();
  /// Whether no work is under way.
  bool has_ended() const { return has_ended_; }

 private:
  std::thread thread_;
  std::atomic<bool> has_ended_{true};
  std::exception_ptr error_;
};

}  // namespace penstock
