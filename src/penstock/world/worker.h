// The thread of one local rank: runs jobs one after the other.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "penstock/base/ids.h"

namespace penstock {

/// Used by one thread.
class Worker {
 public:
  /// `rank`: whose jobs it runs, for the thread's name. `threads`: intra-op threads of LibTorch on this thread.
  Worker(WorldRank rank, int threads);
  /// Runs all queued jobs, then ends the thread. See abandon().
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// Queues `job`, which must not throw. It runs with the caller's grad mode, autocast and denormal settings.
  void post(std::function<void()> job);

  /// Drops all queued jobs and waits up to `timeout` for the running one. A job that does not end (a layer that never
  /// returns) keeps its thread, which is detached, so that a failed program can end. Returns whether the thread ended.
  bool abandon(std::chrono::milliseconds timeout);

  /// When the running job began, by now_ns(); 0 while there is none. The function may outlive this object.
  std::function<std::int64_t()> busy_since_ns() const;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    bool ending = false;
    bool ended = false;
    std::atomic<std::int64_t> busy_since_ns{0};
  };
  static void run(const std::shared_ptr<State>& state, int threads);

  std::shared_ptr<State> state_;  // shared with the thread, which may outlive this object after abandon()
  std::thread thread_;
};

}  // namespace penstock
