// Whether a wait should spin before it sleeps, validated by measuring. Torch-free.
//
// Spinning saves the wake-up, some 50 us, as long as nobody else wants the core. Where somebody does, a yield comes
// back only when the other one's time slice is over: milliseconds later, with the message long there; and the time
// spent spinning counts against this thread when it has to compute. A thread that slept is woken at once. So a spin
// watches how long its own rounds take, a microsecond where the core is free. The first late one ends it and forbids the next
// ones for a while, a longer while each time, until rounds come back in time again. A wait that mostly outlasts
// its spin gains nothing from it either: after many such waits in a row only now and then one spins.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace penstock {

/// The judgement of one waiting thread, which alone calls it. All times in nanoseconds of one steady clock.
class AdaptiveSpin {
 public:
  /// A round (a yield and a few pauses) that takes longer than this was interrupted by somebody else's work.
  static constexpr std::int64_t late_round_ns = 100'000;
  /// How long spins are forbidden after a late round: doubled at each, and less by an eighth after each good spin.
  static constexpr std::int64_t shortest_rest_ns = 2'000'000, longest_rest_ns = 1'000'000'000;
  /// A spin that was shorter says nothing about the core.
  static constexpr std::int64_t telling_spin_ns = 20'000;
  /// After so many spins in a row that ended without the message, one wait in as many spins.
  static constexpr int fruitless_spins = 16;

  /// `longest`: of one spin; zero forbids all. `adapts`: false spins that long in every wait, whatever happens.
  explicit AdaptiveSpin(std::chrono::nanoseconds longest, bool adapts = true)
      : longest_ns_(longest.count()), adapts_(adapts) {}

  /// How long the wait that begins now may spin; 0: it sleeps at once.
  std::int64_t allowed_ns(std::int64_t now_ns) {
    if (!adapts_ || longest_ns_ == 0) return longest_ns_;
    if (now_ns < rests_until_ns_) return 0;
    if (fruitless_ >= fruitless_spins && ++unspun_ < fruitless_spins) return 0;
    unspun_ = 0;
    return longest_ns_;
  }

  /// Tells how long a round took that ends now. False: the spin is to end.
  bool goes_on(std::int64_t now_ns, std::int64_t round_ns) {
    if (!adapts_ || round_ns <= late_round_ns) return true;
    rest_ns_ = std::clamp(2 * rest_ns_, shortest_rest_ns, longest_rest_ns);
    rests_until_ns_ = now_ns + rest_ns_;
    was_late_ = true;
    return false;
  }

  /// A spin has ended, with the message or without it.
  void ended(std::int64_t spun_ns, bool has_message) {
    fruitless_ = has_message || was_late_ ? 0 : std::min(fruitless_ + 1, fruitless_spins);
    if (!was_late_ && spun_ns >= telling_spin_ns) rest_ns_ -= rest_ns_ / 8;
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

}  // namespace penstock
