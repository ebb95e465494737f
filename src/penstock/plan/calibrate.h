// Scales the costs of layers to the measured times of a run. Inside this module only.
#pragma once

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition_search.h"
#include "penstock/schedule/schedule.h"

namespace penstock {

/// A run: its compute instructions, the layers of its stages and the measured times of its instructions.
struct MeasuredRun {
  const Schedule& instructions;
  const Stages& stages;
  const StageCosts& costs;  // measured_costs() of the trace, with one entry per stage; milliseconds
};

/// `costs` scaled to the size of micro-batches and the speed of `run`. For each kind of instruction, the times of a
/// stage's layers are multiplied by the measured time of the stage divided by their sum (I and W together if B is not
/// split); the costs of the link are scaled in the same way. With the result, the costs of the run's own partition are
/// the measured ones, and those of other partitions are in the same unit. If the layers of a stage all cost 0, they get
/// equal shares of the measured time.
LayerCosts calibrated(const LayerCosts& costs, const MeasuredRun& run);

}  // namespace penstock
