// Decides by measuring whether a wait should spin before it sleeps. Torch-free.
//
// Spinning saves the wake-up time of about 50 us while the core is free. On a core that another thread uses, a yield
// returns only after that thread's time slice, milliseconds later, and the scheduler counts the time spent spinning
// against the waiting thread, whereas a sleeping thread is woken at once. So a spin measures its own rounds, which take
// a microsecond on a free core. The first late round ends the spin and forbids spins for a while; the while doubles at
// each further late round and shrinks when rounds are in time. Spins that mostly end without the message gain nothing
// either: after many of those in a row only one wait in several spins.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace penstock::transport {

/// The spin policy of one waiting thread, used by that thread alone. All times are in nanoseconds of one steady clock.
class AdaptiveSpin {
 public:
  /// A round (a yield and a few pauses) that takes longer than this was interrupted by another thread.
  static constexpr std::int64_t late_round_ns = 100'000;
  /// How long spins are forbidden after a late round: doubled at each, and less by an eighth after each good spin.
  static constexpr std::int64_t shortest_rest_ns = 2'000'000, longest_rest_ns = 1'000'000'000;
  /// A shorter spin is no evidence for a free core.
  static constexpr std::int64_t shortest_evidence_ns = 20'000;
  /// After this many spins in a row without the message, only one wait in this many spins.
  static constexpr int fruitless_spins = 16;

  /// `longest`: of one spin; zero forbids all. `adapts`: false allows every wait to spin that long.
  explicit AdaptiveSpin(std::chrono::nanoseconds longest, bool adapts = true)
      : longest_ns_(longest.count()), adapts_(adapts) {}

  /// How long the wait that begins now may spin; 0: it should sleep at once.
  std::int64_t allowed_ns(std::int64_t now_ns) {
    if (!adapts_ || longest_ns_ == 0) return longest_ns_;
    if (now_ns < rests_until_ns_) return 0;
    if (fruitless_ >= fruitless_spins && ++unspun_ < fruitless_spins) return 0;
    unspun_ = 0;
    return longest_ns_;
  }

  /// Records the duration of a round that ends now. Returns whether the spin should continue.
  bool goes_on(std::int64_t now_ns, std::int64_t round_ns) {
    if (!adapts_ || round_ns <= late_round_ns) return true;
    rest_ns_ = std::clamp(2 * rest_ns_, shortest_rest_ns, longest_rest_ns);
    rests_until_ns_ = now_ns + rest_ns_;
    was_late_ = true;
    return false;
  }

  /// Records the end of a spin, with the message or without it.
  void ended(std::int64_t spun_ns, bool has_message) {
    fruitless_ = has_message || was_late_ ? 0 : std::min(fruitless_ + 1, fruitless_spins);
    if (!was_late_ && spun_ns >= shortest_evidence_ns) rest_ns_ -= rest_ns_ / 8;
    was_late_ = false;
  }

 private:
  std::int64_t longest_ns_;
  bool adapts_;
  std::int64_t rests_until_ns_ = 0;
  std::int64_t rest_ns_ = 0;
  int fruitless_ = 0;
  int unspun_ = 0;
  bool was_late_ = false;
};

}  // namespace penstock::transport
