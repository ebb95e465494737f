// The stages that a network's annotations give. Used inside this module only.
#pragma once

#include "penstock/model/cell.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/runtime/options.h"

namespace penstock {

/// The layers of each of the p * v stages of an annotated network; empty without annotations. v is
/// PipelineOptions::chunks or, where that is 0, the smallest that the annotations fit into; one rank has one stage.
/// Throws ScheduleError for annotations that contradict each other or do not fit, and ConfigError for a stage without
/// layers.
StageLayers annotated_stages(Cell& network, const PipelineOptions& options, int ranks);

}  // namespace penstock
