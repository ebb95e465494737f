// Named tensors into the parameters and buffers of all ranks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/runtime/stage.h"
#include "penstock/world/gather.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// Called on every rank's thread, each with the same `state` and what it holds itself. The ranks compare their names,
/// shapes and dtypes with those of `state`; only where all fit are values copied. Returns what does not fit, the same
/// text on every rank; empty where all did.
std::string load_values(const RankContext& context, const GatherTag& tag, const std::vector<Stage::Held>& own,
                        const std::map<std::string, torch::Tensor>& state);

}  // namespace penstock
