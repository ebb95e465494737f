// When a wait for another rank has failed. Torch-free.
//
// A process that lives answers, whatever its rank computes and however long that takes. So a wait fails
//   * when a rank in the chain of waits has given no sign of life for the deadline: it is dead, stopped or unreachable;
//   * when the awaited rank has left the world: what is awaited will never come;
//   * when ranks wait for each other in a circle in which nobody has moved for the deadline;
//   * where a stall limit is set: when nobody in the chain has made progress for so long, alive or not.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/base/ids.h"
#include "penstock/transport/progress.h"

namespace penstock {

/// How a mailbox waits.
struct WaitPolicy {
  /// How long the awaited rank may give no sign of life.
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  /// How long to look before sleeping, at most. Longer than zero only where every rank has a core to itself.
  std::chrono::nanoseconds spin = std::chrono::nanoseconds(0);
  /// How long the awaited rank may show no progress, alive or not; none: as long as it likes.
  std::optional<std::chrono::nanoseconds> stall_limit = std::nullopt;
  /// Whether it looks only while that pays (adaptive_spin.h); false: as long in every wait, which is for comparisons.
  bool adapts = true;

  /// What is awaited is mostly an instruction of a few milliseconds. To sleep through less than this saves nobody anything, as
  /// the core is the rank's own, and being woken up comes on top: of an MLP's step of 24 ms it took 2, all in all.
  static constexpr std::chrono::milliseconds spin_on_own_core{2};

  /// How often a waiting rank looks after its peer.
  std::chrono::nanoseconds poll_every() const {
    return std::min<std::chrono::nanoseconds>(std::chrono::seconds(1),
                                              std::min(deadline, stall_limit.value_or(deadline)) / 4);
  }
};

/// Watches over one wait of `owner` for a message of `from`. Used by the waiting thread alone.
class WaitGuard {
 public:
  WaitGuard(WorldRank owner, WorldRank from, const WaitPolicy& patience, PeerWatch& watch)
      : owner_(owner),
        from_(from),
        patience_(patience),
        watch_(watch),
        period_(patience.poll_every().count()),
        // Late news can be one period old: a peer must have stood still for the limit before the last question.
        late_(watch.hears_late() ? period_ : 0),
        begin_(steady_now_ns()),
        floor_(begin_),
        look_at_(begin_ + std::min(period_, first_look_ns)) {}

  /// When to look next.
  std::int64_t next_look_ns() const { return look_at_; }

  /// Looks after the peers, and asks for news. Throws TransportError when the wait has failed; `waiting_for` is what
  /// the error says the owner waits for.
  void look(std::string_view waiting_for) {
    const std::int64_t now = steady_now_ns();
    // When this process itself was stopped (debugger, suspended job), peers could not show anything.
    if (now - look_at_ > period_) floor_ = std::max(floor_, now - std::max<std::int64_t>(0, look_at_ - floor_));
    const WaitChain chain(watch_, from_);
    const auto fail = [&](const auto&... why) {
      throw TransportError(say("rank ", owner_.value(), " waits for ", waiting_for, " from ",
                               chain.text(std::chrono::nanoseconds(2 * period_)), why...));
    };
    const std::int64_t deadline = patience_.deadline.count();
    std::int64_t silent = 0;
    if (chain.longest_silent(now, floor_, silent) && silent >= deadline)
      fail(" (no sign of life for ", seconds(deadline), " s)");

    const auto& peer = chain.links.front().status;
    // What it sent before it left has overtaken the news of its leaving, all but the end of a long message.
    if (peer && is_end(peer->position) && now - std::max(peer->since_ns, begin_) >= std::min(deadline, leaving_ns))
      fail(", and sends nothing any more");

    const std::int64_t still = now - std::max(floor_, chain.moved_ns());
    if (chain.circle && still >= deadline + late_) fail(" (no progress for ", seconds(deadline), " s)");
    if (patience_.stall_limit && still >= patience_.stall_limit->count() + late_)
      fail(" (no progress for ", seconds(patience_.stall_limit->count()), " s, the stall limit)");

    watch_.ask(from_);
    look_at_ = now + period_;
    if (silent > 0) look_at_ = std::min(look_at_, std::max(now + 1, now + deadline - silent));
  }

 private:
  static constexpr std::int64_t first_look_ns = 250'000'000;
  static constexpr std::int64_t leaving_ns = 1'000'000'000;
  static double seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

  const WorldRank owner_, from_;
  const WaitPolicy& patience_;
  PeerWatch& watch_;
  const std::int64_t period_, late_, begin_;
  std::int64_t floor_;  // nothing before this counts against anybody
  std::int64_t look_at_;
};

}  // namespace penstock
