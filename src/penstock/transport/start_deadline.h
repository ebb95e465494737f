// How long processes wait for each other at the start of a world. Torch-free.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "penstock/base/clock.h"

namespace penstock {

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

}  // namespace penstock
