// Sees that a rank of this process has stalled, for the program's thread, which waits for its ranks. Waits of ranks for
// each other have the same limit (transport/liveness.h) and say more, so only ranks that no rank here waits for count.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "penstock/transport/transport.h"

namespace penstock {

/// Immutable, and usable from any thread. Shares ownership of what it reads, because a rank that hangs may outlive its
/// world.
class StallWatch {
 public:
  struct LocalRank {
    std::shared_ptr<Transport> endpoint;
    /// When the rank began its present job, by now_ns(); 0 where it has none.
    std::function<std::int64_t()> busy_since_ns;
  };

  StallWatch(std::chrono::nanoseconds limit, std::vector<LocalRank> ranks) : limit_(limit), ranks_(std::move(ranks)) {}

  /// One wait, by one thread. Time in which this process was stopped does not count.
  class Wait {
   public:
    explicit Wait(const StallWatch& watch);
    /// To be called every `interval`. Where a rank has been in a job for the limit without progress, neither waits for
    /// another rank nor is awaited by one of this process, aborts the world and returns the failure; otherwise null.
    std::exception_ptr check();

   private:
    const StallWatch& watch_;
    std::int64_t floor_ns_;  // time before this does not count
    std::int64_t checked_ns_;
  };

  /// Whether at least one rank is in a job, and all that are have stalled. A rank that waits for another one has not:
  /// after a failure of the world it is about to end.
  bool only_stalled_ranks_are_busy() const;

  static constexpr std::chrono::milliseconds interval{20};

  /// Waits on `changed` until `condition` holds, or a rank has stalled: returns its failure then, otherwise null.
  template <class Condition>
  std::exception_ptr wait(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                          const Condition& condition) const {
    for (Wait own(*this); !changed.wait_for(lock, interval, condition);)
      if (auto failure = own.check()) return failure;
    return nullptr;
  }

 private:
  /// For how long, by the time `now_ns`, the rank has made no progress in its job; 0 where it has none.
  static std::int64_t still_ns(const LocalRank& rank, std::int64_t now_ns);

  const std::chrono::nanoseconds limit_;
  const std::vector<LocalRank> ranks_;
};

}  // namespace penstock
