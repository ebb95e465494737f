// Decides when a wait for another rank has failed. Torch-free.
//
// A live process answers questions, whatever its rank computes and however long that takes. So a wait fails
//   * when a rank in the chain of waits has given no sign of life for the deadline: it is dead, stopped or unreachable;
//   * when the awaited rank has left the world: the awaited message will never come;
//   * when ranks wait for each other in a circle in which no rank has made progress for the deadline;
//   * where a stall limit is set: when no rank in the chain has made progress for that long, alive or not.
//
// A wait for this rank's device depends on every rank whose transfers the device waits for, directly or through the
// devices of others. Their hosts wait for none of this, so that no chain leads from one to the next: such a wait
// watches several ranks. It fails when one of them or a rank in its chain is silent, when one has left the world that
// has still to send, and at the stall limit when none has made progress.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/transport/progress.h"

namespace penstock::transport {

/// How a mailbox waits.
struct WaitPolicy {
  /// The wait fails when the awaited rank gives no sign of life for this long.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  /// Longest time to poll before sleeping. Above zero only where every rank has a core to itself.
  std::chrono::nanoseconds spin = std::chrono::nanoseconds(0);
  /// The wait fails when the awaited rank makes no progress for this long, alive or not; none: no limit.
  std::optional<std::chrono::nanoseconds> stall_limit = std::nullopt;
  /// Whether a wait polls only where that was useful before (adaptive_spin.h); false, for comparisons: always.
  bool adapts = true;

  /// A rank mostly waits for an instruction of a few milliseconds. Sleeping for less than this frees nothing that
  /// another rank could use, as the core is the rank's own, and adds the wake-up time: 2 of the 24 ms of an MLP's step,
  /// in sum.
  static constexpr std::chrono::milliseconds spin_on_own_core{2};

  /// How often a waiting rank checks its peer.
  std::chrono::nanoseconds poll_every() const {
    return std::min<std::chrono::nanoseconds>(std::chrono::milliseconds(250),
                                              std::min(deadline, stall_limit.value_or(deadline)) / 4);
  }
};

/// A rank that a wait watches.
struct AwaitedRank {
  WorldRank rank;
  /// Whether it has still to send what is awaited: the wait then fails when it has left the world.
  bool has_to_send = true;
};

/// Checks during one wait of `owner` for `awaited` whether it has failed. Used by the waiting thread alone, which tells
/// it the time: now_ns().
class WaitGuard {
 public:
  WaitGuard(WorldRank owner, const std::vector<AwaitedRank>& awaited, const WaitPolicy& policy, PeerWatch& watch,
            std::int64_t now)
      : owner_(owner),
        policy_(policy),
        watch_(watch),
        period_(policy.poll_every().count()),
        // An answer can be one period old: the limit counts from before the last question.
        late_(watch.status_is_delayed() ? period_ : 0),
        floor_(now),
        check_at_(floor_ + std::min(period_, first_check_ns)) {
    for (const AwaitedRank& each : awaited) awaited_.push_back({each, std::nullopt});
  }

  /// When to call check() next, on the steady clock.
  std::int64_t next_check_ns() const { return check_at_; }

  /// Checks the peers and asks for their status. Throws TransportError when the wait has failed; `waiting_for` names
  /// the awaited message in the error.
  void check(std::string_view waiting_for, std::int64_t now) {
    // Time in which this process itself was stopped (debugger, suspended job) does not count against peers.
    // What has arrived meanwhile is received before the next check; this one decides nothing, but not twice in a row.
    if (const std::int64_t stopped = now - check_at_; stopped > period_) {
      floor_ = std::max(floor_, now - std::max<std::int64_t>(0, check_at_ - floor_));
      for (Awaited& each : awaited_)
        if (each.left) *each.left += stopped;
      if (!std::exchange(was_stopped_, true)) {
        ask();
        check_at_ = now + period_;
        return;
      }
    }
    was_stopped_ = false;
    check_at_ = now + period_;
    std::int64_t moved = floor_;
    for (Awaited& each : awaited_) {
      const WaitChain chain(watch_, each.rank());
      check_life(each, chain, waiting_for, now);
      const std::int64_t chain_moved = std::max(floor_, chain.moved_ns());
      if (chain.circle && is_over(policy_.deadline, now - chain_moved, now))
        fail(chain, waiting_for, " (no progress for ", to_s(policy_.deadline.count()), " s)");
      moved = std::max(moved, chain_moved);
    }
    if (const auto limit = policy_.stall_limit; limit && !awaited_.empty() && is_over(*limit, now - moved, now))
      fail(WaitChain(watch_, awaited_.front().rank()), waiting_for, " (no progress for ", to_s(limit->count()),
           " s, the stall limit)");
    ask();
  }

 private:
  static constexpr std::int64_t first_check_ns = 250'000'000;
  static constexpr std::int64_t leaving_ns = 1'000'000'000;

  struct Awaited {
    AwaitedRank awaited;
    std::optional<std::int64_t> left;  // when this wait first saw that the rank has left

    WorldRank rank() const { return awaited.rank; }
  };

  template <class... Why>
  [[noreturn]] void fail(const WaitChain& chain, std::string_view waiting_for, const Why&... why) const {
    throw TransportError(say("rank ", owner_.value(), " waits for ", waiting_for, " from ",
                             chain.text(std::chrono::nanoseconds(2 * period_)), why...));
  }

  void check_life(Awaited& each, const WaitChain& chain, std::string_view waiting_for, std::int64_t now) {
    const std::int64_t deadline = policy_.deadline.count();
    std::int64_t silent = 0;
    if (chain.longest_silent(now, floor_, silent) && silent >= deadline)
      fail(chain, waiting_for, " (no sign of life for ", to_s(deadline), " s)");
    if (silent > 0) check_at_ = std::min(check_at_, std::max(now + 1, now + deadline - silent));

    // A message that it sent before it left may still be under way when this process learns that it has left, however
    // long ago that was: both come at once to a process that had no time to receive.
    if (!each.awaited.has_to_send) return;
    if (const auto& peer = chain.links.front().status; peer && is_end(peer->position)) {
      if (!each.left) each.left = now;
      if (now - *each.left >= std::min(deadline, leaving_ns)) fail(chain, waiting_for, ", and sends nothing any more");
    }
  }

  /// Whether ranks have been without progress, for `still_ns` at `now`, for longer than `limit`; otherwise when to
  /// check
  /// again.
  bool is_over(std::chrono::nanoseconds limit, std::int64_t still_ns, std::int64_t now) {
    const std::int64_t left = limit.count() + late_ - still_ns;
    // The last question has a whole period for its answer.
    if (left > period_) check_at_ = std::min(check_at_, now + left - period_);
    return left <= 0;
  }

  void ask() {
    for (const Awaited& each : awaited_) watch_.ask(each.rank());
  }

  const WorldRank owner_;
  std::vector<Awaited> awaited_;
  const WaitPolicy& policy_;
  PeerWatch& watch_;
  const std::int64_t period_, late_;
  std::int64_t floor_;  // time before this does not count against peers
  std::int64_t check_at_;
  bool was_stopped_ = false;  // before the last check
};

}  // namespace penstock::transport
