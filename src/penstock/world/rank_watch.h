// What the program's thread watches while it waits for the ranks of its process: whether one has stalled, and whether
// the world has failed and a rank does not notice, because it hangs. So no such wait outlasts a failure.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "penstock/transport/control_plane.h"
#include "penstock/transport/progress.h"

namespace penstock {

/// Thread-safe. Lives as long as a result of a step, which may outlive the world and its endpoints.
class RankWatch {
 public:
  struct LocalRank {
    std::weak_ptr<ControlPlane> endpoint;
    /// When the rank began its present job, by now_ns(); 0 where it has none.
    std::function<std::int64_t()> busy_since_ns;
  };

  /// `deadline` is WorldOptions::deadline. A rank stalls that makes no progress for `stall_limit`; none: no rank does.
  RankWatch(std::chrono::nanoseconds deadline, std::optional<std::chrono::nanoseconds> stall_limit,
            std::vector<LocalRank> ranks)
      : deadline_(deadline), stall_limit_(stall_limit), ranks_(std::move(ranks)) {}

  std::chrono::nanoseconds deadline() const { return deadline_; }

  /// One wait, by one thread. Time in which this process was stopped does not count.
  class Wait {
   public:
    explicit Wait(const RankWatch& watch);
    /// To be called every `interval`. Returns the failure that ends the wait; otherwise null. Where a rank has been in
    /// a job for the stall limit without progress, neither waits for another rank nor is awaited by one of this
    /// process, aborts the world: waits of ranks for each other have the same limit (transport/liveness.h) and say
    /// more.
    std::exception_ptr check();

   private:
    std::exception_ptr check_for_stall();

    const RankWatch& watch_;
    std::int64_t floor_ns_;  // time before this does not count
    std::int64_t checked_ns_;
  };

  /// The reason for which the world has failed, or that it has ended; none while it works.
  std::optional<std::string> failed() const;
  /// What is left of the time in which ranks end their work after a failure; a rank that still works then hangs. The
  /// time begins when the program first waits for its ranks after the failure. Stalled ranks get none. REQUIRES: the
  /// world has failed.
  std::chrono::milliseconds time_left_after_failure() const;

  static constexpr std::chrono::milliseconds interval{20};

  /// Waits on `changed` until `condition` holds; returns null then, otherwise the failure of Wait::check().
  template <class Condition>
  std::exception_ptr wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                          const Condition& condition) const {
    for (Wait own(*this); !changed.wait_for(lock, interval, condition);)
      if (auto failure = own.check()) return failure;
    return nullptr;
  }

 private:
  static constexpr std::chrono::milliseconds time_to_end_after_failure{1500};

  /// The status of a rank that is in a job, and for how long it has made no progress there.
  struct BusyRank {
    std::shared_ptr<ControlPlane> endpoint;
    transport::PeerStatus status;
    std::int64_t still_ns = 0;
  };
  std::vector<BusyRank> busy_ranks(std::int64_t now_ns) const;
  /// Whether at least one rank is in a job, and all that are have stalled. A rank that waits for another one has not:
  /// after a failure of the world it is about to end.
  bool only_stalled_ranks_are_busy() const;

  const std::chrono::nanoseconds deadline_;
  const std::optional<std::chrono::nanoseconds> stall_limit_;
  const std::vector<LocalRank> ranks_;
  mutable std::atomic<std::int64_t> failure_seen_ns_{0};  // by time_left_after_failure(); 0: not yet
};

}  // namespace penstock
