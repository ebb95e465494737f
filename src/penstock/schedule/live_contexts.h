// The live micro-batches of each rank's stages at the points of a step at which they can need the most memory.
#pragma once

#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

/// The live micro-batches of one rank's stages, in the order of the stages, at each point in time that can be the peak:
/// no other point has at least as many in every stage. A micro-batch counts 1 from its F to its B or I, and the weight
/// share from I to W.
using LiveContexts = std::vector<std::vector<double>>;

/// One entry per rank.
std::vector<LiveContexts> live_contexts(const Schedule& schedule, double weight_share);

}  // namespace penstock
