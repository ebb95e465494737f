// The ranks between which the tensors of a pipeline travel, for device channels (transport/device_channels.h).
#pragma once

#include <memory>
#include <vector>

#include "penstock/model/stages.h"
#include "penstock/runtime/stage.h"
#include "penstock/runtime/stage_placement.h"

namespace penstock {

/// The ordered pairs of this rank, ascending, so that two ranks have their common pairs in one order: with the holders
/// of the stages that its own send to or receive from, of the same stages in other replicas, and of the stages that
/// share parameters with its own.
std::vector<RankPair> pairs_of(const StagedGraph& staged, const StagePlacement& placement,
                               const std::vector<std::unique_ptr<Stage>>& own_stages);

}  // namespace penstock
