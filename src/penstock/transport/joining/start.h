// What processes compare and say at the start of a world: how long they wait for each other, who is missing, and which
// build they run. Torch-free.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"

namespace penstock::joining {

/// The time that the start of a world may take, not counting that in which this process is stopped.
class StartDeadline {
 public:
  explicit StartDeadline(std::chrono::nanoseconds length) : left_ns_(length.count()) {}

  /// To be called about every `look_every`.
  bool is_over() {
    const std::int64_t now = now_ns();
    left_ns_ -= std::min(now - std::exchange(looked_ns_, now), longest_pause_ns);
    return left_ns_ < 0;
  }
  static constexpr std::chrono::milliseconds look_every{10};

 private:
  static constexpr std::int64_t longest_pause_ns = 100'000'000;  // of a process that runs
  std::int64_t left_ns_;
  std::int64_t looked_ns_ = now_ns();
};

/// "the world is incomplete after 60 s (the start deadline): WHY"
inline std::string incomplete_text(std::chrono::milliseconds deadline, const std::string& why) {
  return say("the world is incomplete after ", static_cast<double>(deadline.count()) * 1e-3,
             " s (the start deadline): ", why);
}

/// "rank 1 and rank 3 have not joined: start all ranks, or set a longer start deadline"
inline std::string missing_text(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += say(text.empty() ? "rank " : " and rank ", rank);
  return say(text, ranks.size() == 1 ? " has" : " have",
             " not joined: start all ranks, or set a longer start deadline");
}

// Processes of one world run the same build, because they send each other the bytes of their structs (wire.h,
// records.h).

/// 12 hexadecimal digits that differ, in all likelihood, between different sources of this library.
std::string_view source_digest();

/// "penstock 0.2.0 (1f2e3d4c5b6a) with LibTorch 2.13.0": the version, the digest, and LibTorch's version.
std::string build_identity();

}  // namespace penstock::joining
