// Gathers steps and tensors of all ranks of a world on rank 0. The tag is a control_tag() of Topic::gathering.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/trace/recorder.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// Called on every rank's thread with its own steps. Returns those of all ranks, by world rank, with times on the clock
/// of rank 0's host; on other ranks an empty list.
std::vector<std::vector<RankStep>> gather_steps(const RankContext& context, const Tag& tag,
                                                const std::vector<RankStep>& own);

/// Called on every rank's thread with its own named tensors (none on replicas other than the first). Returns copies of
/// all of them on rank 0, and an empty map on the others, once rank 0 has all.
std::map<std::string, torch::Tensor> gather_tensors(const RankContext& context, const Tag& tag,
                                                    const std::vector<std::pair<std::string, torch::Tensor>>& own);

}  // namespace penstock
