// Decides when a wait for another rank has failed. Torch-free.
//
// A live process answers questions, whatever its rank computes and however long that takes. So a wait fails
//   * when a rank in the chain of waits has given no sign of life for the deadline: it is dead, stopped or unreachable;
//   * when the awaited rank has left the world: the awaited message will never come;
//   * when ranks wait for each other in a circle in which no rank has made progress for the deadline;
//   * where a stall limit is set: when no rank in the chain has made progress for that long, alive or not.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/transport/progress.h"

namespace penstock {

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

/// Checks during one wait of `owner` for a message of `from` whether it has failed. Used by the waiting thread alone,
/// which tells it the time: now_ns().
class WaitGuard {
 public:
  WaitGuard(WorldRank owner, WorldRank from, const WaitPolicy& policy, PeerWatch& watch, std::int64_t now)
      : owner_(owner),
        from_(from),
        policy_(policy),
        watch_(watch),
        period_(policy.poll_every().count()),
        // An answer can be one period old: the limit counts from before the last question.
        late_(watch.status_is_delayed() ? period_ : 0),
        floor_(now),
        check_at_(floor_ + std::min(period_, first_check_ns)) {}

  /// When to call check() next, on the steady clock.
  std::int64_t next_check_ns() const { return check_at_; }

  /// Checks the peers and asks for their status. Throws TransportError when the wait has failed; `waiting_for` names
  /// the awaited message in the error.
  void check(std::string_view waiting_for, std::int64_t now) {
    // Time in which this process itself was stopped (debugger, suspended job) does not count against peers.
    // What has arrived meanwhile is received before the next check; this one decides nothing, but not twice in a row.
    if (const std::int64_t stopped = now - check_at_; stopped > period_) {
      floor_ = std::max(floor_, now - std::max<std::int64_t>(0, check_at_ - floor_));
      if (left_) *left_ += stopped;
      if (!std::exchange(was_stopped_, true)) {
        watch_.ask(from_);
        check_at_ = now + period_;
        return;
      }
    }
    was_stopped_ = false;
    const WaitChain chain(watch_, from_);
    const auto fail = [&](const auto&... why) {
      throw TransportError(say("rank ", owner_.value(), " waits for ", waiting_for, " from ",
                               chain.text(std::chrono::nanoseconds(2 * period_)), why...));
    };
    const std::int64_t deadline = policy_.deadline.count();
    std::int64_t silent = 0;
    if (chain.longest_silent(now, floor_, silent) && silent >= deadline)
      fail(" (no sign of life for ", to_s(deadline), " s)");

    // A message that it sent before it left may still be under way when this process learns that it has left, however
    // long ago that was: both come at once to a process that had no time to receive.
    if (const auto& peer = chain.links.front().status; peer && is_end(peer->position)) {
      if (!left_) left_ = now;
      if (now - *left_ >= std::min(deadline, leaving_ns)) fail(", and sends nothing any more");
    }

    const std::int64_t still = now - std::max(floor_, chain.moved_ns());
    std::int64_t pause = period_;
    const auto limit_stillness = [&](std::int64_t limit, std::string_view name) {
      const std::int64_t left = limit + late_ - still;
      if (left <= 0) fail(" (no progress for ", to_s(limit), " s", name, ")");
      // The last question has a whole period for its answer.
      if (left > period_) pause = std::min(pause, left - period_);
    };
    if (chain.circle) limit_stillness(deadline, "");
    if (policy_.stall_limit) limit_stillness(policy_.stall_limit->count(), ", the stall limit");

    watch_.ask(from_);
    check_at_ = now + pause;
    if (silent > 0) check_at_ = std::min(check_at_, std::max(now + 1, now + deadline - silent));
  }

 private:
  static constexpr std::int64_t first_check_ns = 250'000'000;
  static constexpr std::int64_t leaving_ns = 1'000'000'000;

  const WorldRank owner_, from_;
  const WaitPolicy& policy_;
  PeerWatch& watch_;
  const std::int64_t period_, late_;
  std::int64_t floor_;  // time before this does not count against peers
  std::int64_t check_at_;
  bool was_stopped_ = false;          // before the last check
  std::optional<std::int64_t> left_;  // when this wait first saw that the awaited rank has left
};

}  // namespace penstock
