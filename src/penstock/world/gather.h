// What the ranks of a world know, brought to rank 0.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/trace/recorder.h"
#include "penstock/world/gather_tag.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// Called on every rank's thread with its own steps. Rank 0 gets all, by world rank, on the clock of its own host; the
/// others nothing.
std::vector<std::vector<RankStep>> gather_steps(const RankContext& context, const GatherTag& tag,
                                                const std::vector<RankStep>& own);

/// Called on every rank's thread with its own named tensors (none for replicas but the first). Rank 0 gets copies of
/// all of them; the others nothing.
std::map<std::string, torch::Tensor> gather_tensors(const RankContext& context, const GatherTag& tag,
                                                    const std::vector<std::pair<std::string, torch::Tensor>>& own);

}  // namespace penstock
