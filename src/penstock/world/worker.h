// The thread of one local rank: runs jobs one after the other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace penstock {

class Worker {
 public:
  /// `threads`: intra-op threads of everything that runs here.
  explicit Worker(int threads);
  /// Runs what is queued, then ends. See abandon().
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Queues `job`, which must not throw. It runs with the caller's grad mode, autocast and denormal settings.
  void post(std::function<void()> job);

  /// Drops what is queued and gives a running job `patience` to end. One that does not (a layer that never returns)
  /// is left behind, so that a failed program can end. False when it was left behind.
  bool abandon(std::chrono::milliseconds patience);

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool ending = false;
    bool ended = false;
  };
  static void run(const std::shared_ptr<State>& state, int threads);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object after abandon()
  std::thread thread_;
};

}  // namespace penstock
