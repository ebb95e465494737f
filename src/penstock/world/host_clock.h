// Times of several hosts on one clock. Steady clocks of two hosts begin at their boots: they are never subtracted from
// each other, but what lies between them can be measured.
#pragma once

#include <cstdint>
#include <vector>

#include "penstock/trace/recorder.h"
#include "penstock/world/gather_tag.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// A question and its answer: asked and answered on the clock of who asks, read on the other one.
struct ClockReading {
  std::int64_t asked_ns = 0;
  std::int64_t read_ns = 0;
  std::int64_t answered_ns = 0;
};

/// What the other clock shows more than the own one: from the reading that took the shortest way there and back, as if
/// both ways were equally long. Off by half of that way at most. REQUIRES: at least one reading.
std::int64_t clock_offset_ns(const std::vector<ClockReading>& readings);

/// Moves every time of `steps` by `-offset_ns`: from the other clock to the own one.
void to_own_clock(std::int64_t offset_ns, std::vector<RankStep>& steps);

/// Called by the first rank and by `other` together, where these are on different hosts: a few questions and answers.
/// The first rank gets the offset of the other one's clock, the other one 0.
std::int64_t measure_clock_offset(const RankContext& context, const GatherTag& tag, WorldRank other);

}  // namespace penstock
