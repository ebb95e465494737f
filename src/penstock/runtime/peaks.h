// The most that ranks held, asked of each and brought together.
#pragma once

#include <vector>

#include "penstock/runtime/rank_peak.h"
#include "penstock/runtime/rank_runner.h"
#include "penstock/world/gather.h"

namespace penstock {

RankPeak peak_of(WorldRank rank, const RankRunner& runner);

/// Called on every rank's thread with its own. Rank 0 gets all, by world rank; the others nothing.
std::vector<RankPeak> gather_peaks(const RankContext& context, const GatherTag& tag, const RankPeak& own);

}  // namespace penstock
