// Recompute in plans: blocks whose activations are computed again in the backward pass (activation checkpointing: Chen,
// Xu, Zhang and Guestrin, "Training deep nets with sublinear memory cost", 2016). Inside this module only.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition_search.h"

namespace penstock {

/// Per layer, whether it is recomputed. All layers of a block agree. Empty: none.
using Recomputed = std::vector<bool>;

/// The costs with recompute: I and B of a recomputed layer contain its F, and of a recomputed block only the input is
/// stored from F to I.
LayerCosts with_recompute(const LayerCosts& costs, const Recomputed& recomputed);

/// The most bytes of activations that a recomputed block of `range` has during its backward pass, for one measured
/// micro-batch.
double recompute_bytes(const LayerCosts& costs, const Recomputed& recomputed, LayerRange range);

/// Marks one more block of `ranges`: of those that are not, the one that saves the most bytes for its time, the first
/// of several. Returns false if none is left that saves anything.
bool recompute_one_more(const LayerCosts& costs, const std::vector<LayerRange>& ranges, Recomputed& recomputed);

/// The names of the recomputed blocks, and of recomputed layers outside of blocks, in order.
std::vector<std::string> names_of(const LayerCosts& costs, const Recomputed& recomputed);

/// The inverse of names_of(). Throws ConfigError for a name that `costs` do not have.
Recomputed recomputed_of(const LayerCosts& costs, const std::vector<std::string>& names);

}  // namespace penstock
