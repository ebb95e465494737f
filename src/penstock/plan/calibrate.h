// The costs of layers as a run really had them. Inside this module only.
#pragma once

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition_search.h"
#include "penstock/schedule/schedule.h"

namespace penstock {

/// What ran: compute instructions, the layers of its stages, and what its instructions took (measured_costs()).
struct MeasuredRun {
  const Schedule& instructions;
  const Stages& stages;
  const Costs& costs;  // per stage, one for each; milliseconds
};

/// `costs` brought to the micro-batches and the speed of `run`: each layer's times are multiplied by what its stage
/// took over what its layers say, each kind of instruction by itself (I and W as B where B is not split), and the link by what
/// a message took. So the costs of the run's own partition are those measured, whatever the unit and the size of micro-batch
/// of `costs`, and other partitions are told in the same unit. Layers that say 0 share evenly what their stage took.
LayerCosts calibrated(const LayerCosts& costs, const MeasuredRun& run);

}  // namespace penstock
