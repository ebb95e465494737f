// The candidates between which predictions are too inaccurate to decide: their steps are to be measured.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "penstock/plan/candidate.h"

namespace penstock {

/// Up to `most` of `candidates`, which are sorted as Planned::candidates are. No two of them agree in schedule, chunks,
/// m and mode of weight gradients, or in instructions and partition. They are the first; the best one with streamed,
/// and the best one with fused or grouped weight gradients, and the schedule of the first in the other of these modes,
/// unless they are predicted to take 50 % longer; then those that are predicted to take at most 10 % longer, the
/// shortest first. Predictions are accurate to 10 %; the times of weight gradients are their least certain parts.
/// Returns their indices in this order. `plan_of(i)` makes the plan of candidate i; it is called for few of them.
std::vector<std::size_t> finalists_of(std::span<const Candidate> candidates, int most,
                                      const std::function<Plan(std::size_t)>& plan_of);

}  // namespace penstock
