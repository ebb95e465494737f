// Gathers steps and tensors of all ranks of a world on rank 0, with times on the clock of rank 0's host.
// The tag is a control_tag() of Topic::gathering.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "penstock/base/tensor.h"
#include "penstock/trace/recorder.h"
#include "penstock/transport/tag.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// One round trip: asked and answered on the asking rank's clock, read on the other one.
struct ClockReading {
  std::int64_t asked_ns = 0;
  std::int64_t read_ns = 0;
  std::int64_t answered_ns = 0;
};

/// Returns the other clock minus this one, from the shortest round trip and under the assumption that both of its ways
/// took equally long. The error is at most half of that round trip. Steady clocks of two hosts start at their boots, so
/// that their times can only be compared after this was measured. REQUIRES: at least one reading.
std::int64_t clock_offset_ns(const std::vector<ClockReading>& readings);

/// Subtracts `offset_ns` from every time of `steps`: converts from the other clock to this one.
void to_own_clock(std::int64_t offset_ns, std::vector<RankStep>& steps);

/// Called on every rank's thread. Returns on rank 0, by world rank, the clock of each rank's host minus that of its
/// own, from a few messages to each rank of another host; an empty list on the others.
std::vector<std::int64_t> measure_clock_offsets(const RankContext& context, const Tag& tag);

/// Called on every rank's thread with its own steps. Returns those of all ranks, by world rank, with times on the clock
/// of rank 0's host; on other ranks an empty list.
std::vector<std::vector<RankStep>> gather_steps(const RankContext& context, const Tag& tag,
                                                const std::vector<RankStep>& own);

/// Called on every rank's thread with its own tensors (none on replicas other than the first). Returns copies of all of
/// them on rank 0, and nothing on the others, once rank 0 has all.
StateDict gather_tensors(const RankContext& context, const Tag& tag, const StateParts& own);

}  // namespace penstock
