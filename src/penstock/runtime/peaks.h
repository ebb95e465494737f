// Gathers the peak activations of all ranks.
#pragma once

#include <vector>

#include "penstock/runtime/rank_peak.h"
#include "penstock/runtime/rank_runner.h"
#include "penstock/world/gather.h"

namespace penstock {

RankPeak peak_of(WorldRank rank, const RankRunner& runner);

/// Called on every rank's thread with its own peak. Returns those of all ranks, by world rank, on rank 0; an empty list
/// on the others.
std::vector<RankPeak> gather_peaks(const RankContext& context, const Tag& tag, const RankPeak& own);

}  // namespace penstock
