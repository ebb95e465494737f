// Copies named tensors into the parameters and buffers of all ranks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/runtime/stage.h"
#include "penstock/world/gather.h"
#include "penstock/world/rank_context.h"

namespace penstock {

/// Called on every rank's thread with the same `state` and the rank's own parameters and buffers. The ranks compare
/// names, shapes and dtypes with those of `state`, and copy values only where all match. Returns the mismatch as text,
/// the same on every rank; empty where there is none.
std::string load_values(const RankContext& context, const Tag& tag, const std::vector<Stage::Held>& own,
                        const std::map<std::string, torch::Tensor>& state);

}  // namespace penstock
