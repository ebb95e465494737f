#include "penstock/world/stall_watch.h"

#include <algorithm>
#include <set>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/transport/progress.h"

namespace penstock {

std::int64_t StallWatch::still_ns(const LocalRank& rank, std::int64_t now_ns) {
  const std::int64_t busy_since = rank.busy_since_ns();
  return busy_since == 0 ? 0 : now_ns - std::max(busy_since, rank.endpoint->status().moved_ns);
}

StallWatch::Wait::Wait(const StallWatch& watch) : watch_(watch), floor_ns_(now_ns()), checked_ns_(floor_ns_) {}

std::exception_ptr StallWatch::Wait::check() {
  const std::int64_t now = now_ns();
  // A check that comes much too late comes from a process that was stopped, and so were its ranks.
  if (const std::int64_t gap = now - checked_ns_; gap > 10 * std::chrono::nanoseconds(interval).count())
    floor_ns_ += gap;
  checked_ns_ = now;
  std::set<WorldRank> waiting, awaited;
  for (const LocalRank& rank : watch_.ranks_)
    if (const auto peer = rank.endpoint->status().waits_for) {
      waiting.insert(rank.endpoint->rank());
      awaited.insert(*peer);
    }
  for (const LocalRank& rank : watch_.ranks_) {
    const WorldRank number = rank.endpoint->rank();
    if (waiting.contains(number) || awaited.contains(number)) continue;
    if (std::min(now - floor_ns_, still_ns(rank, now)) < watch_.limit_.count()) continue;
    const std::string reason =
        say("the program waits for rank ", number.value(), ", which is ", place_of(rank.endpoint->status(), now),
            " (no progress for ", to_s(watch_.limit_.count()), " s, the stall limit)");
    rank.endpoint->abort(reason);
    return std::make_exception_ptr(RankFailure(rank.endpoint->aborted().value_or(reason)));
  }
  return nullptr;
}

bool StallWatch::only_stalled_ranks_are_busy() const {
  bool any = false;
  for (const LocalRank& rank : ranks_) {
    if (rank.busy_since_ns() == 0) continue;
    if (rank.endpoint->status().waits_for || still_ns(rank, now_ns()) < limit_.count()) return false;
    any = true;
  }
  return any;
}

}  // namespace penstock
