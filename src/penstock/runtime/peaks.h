// The most that ranks held, asked of each and brought together.
#pragma once

#include <vector>

#include "penstock/runtime/gather.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/rank_runner.h"

namespace penstock {

Pipeline::Peak peak_of(WorldRank rank, const RankRunner& runner);

/// Called on every rank's thread with its own. Rank 0 gets all, by world rank; the others nothing.
std::vector<Pipeline::Peak> gather_peaks(const RankContext& context, const GatherTag& tag, const Pipeline::Peak& own);

}  // namespace penstock
