#include "penstock/world/rank_watch.h"

#include <algorithm>
#include <set>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/transport/transport.h"

namespace penstock {

std::optional<std::string> RankWatch::failed() const {
  for (const LocalRank& rank : ranks_) {
    const auto endpoint = rank.endpoint.lock();
    if (!endpoint) return "the world has ended";
    if (auto reason = endpoint->aborted()) return reason;
  }
  return std::nullopt;
}

std::chrono::milliseconds RankWatch::time_left_after_failure() const {
  if (only_stalled_ranks_are_busy()) return std::chrono::milliseconds(0);
  const std::int64_t now = now_ns();
  std::int64_t seen = 0;
  if (failure_seen_ns_.compare_exchange_strong(seen, now)) seen = now;
  return std::chrono::duration_cast<std::chrono::milliseconds>(time_to_end_after_failure -
                                                               std::chrono::nanoseconds(now - seen));
}

std::vector<RankWatch::BusyRank> RankWatch::busy_ranks(std::int64_t now_ns) const {
  std::vector<BusyRank> busy;
  for (const LocalRank& rank : ranks_) {
    const auto endpoint = rank.endpoint.lock();
    const std::int64_t busy_since = rank.busy_since_ns();
    if (!endpoint || busy_since == 0) continue;
    const transport::PeerStatus status = endpoint->status();
    busy.push_back({endpoint, status, now_ns - std::max(busy_since, status.moved_ns)});
  }
  return busy;
}

bool RankWatch::only_stalled_ranks_are_busy() const {
  if (!stall_limit_) return false;
  const std::vector<BusyRank> busy = busy_ranks(now_ns());
  return !busy.empty() && std::all_of(busy.begin(), busy.end(), [&](const BusyRank& rank) {
    return !rank.status.waits_for && rank.still_ns >= stall_limit_->count();
  });
}

RankWatch::Wait::Wait(const RankWatch& watch) : watch_(watch), floor_ns_(now_ns()), checked_ns_(floor_ns_) {}

std::exception_ptr RankWatch::Wait::check() {
  const auto reason = watch_.failed();
  if (!reason) return watch_.stall_limit_ ? check_for_stall() : nullptr;
  return watch_.time_left_after_failure().count() > 0 ? nullptr : std::make_exception_ptr(RankFailure(*reason));
}

std::exception_ptr RankWatch::Wait::check_for_stall() {
  const std::int64_t now = now_ns(), limit = watch_.stall_limit_->count();
  // A check that comes much too late comes from a process that was stopped, and so were its ranks.
  if (const std::int64_t gap = now - checked_ns_; gap > 10 * std::chrono::nanoseconds(interval).count())
    floor_ns_ += gap;
  checked_ns_ = now;
  const std::vector<BusyRank> busy = watch_.busy_ranks(now);
  std::set<WorldRank> awaited;
  for (const BusyRank& rank : busy)
    if (rank.status.waits_for) awaited.insert(*rank.status.waits_for);
  for (const auto& [endpoint, status, still_ns] : busy) {
    if (status.waits_for || awaited.contains(endpoint->rank())) continue;
    if (std::min(now - floor_ns_, still_ns) < limit) continue;
    const std::string reason =
        say("the program waits for rank ", endpoint->rank().value(), ", which is ", transport::place_of(status, now),
            " (no progress for ", to_s(limit), " s, the stall limit)");
    endpoint->abort(reason);
    return std::make_exception_ptr(RankFailure(endpoint->aborted().value_or(reason)));
  }
  return nullptr;
}

}  // namespace penstock
