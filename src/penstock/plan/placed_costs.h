// Costs of stages on the devices of a cluster, for simulate(): what the planner computes from the costs of layers, for
// costs of stages.
#pragma once

#include <string>

#include "penstock/plan/cluster.h"
#include "penstock/schedule/instruction.h"
#include "penstock/schedule/stage_costs.h"

namespace penstock {

struct OnCluster {
  std::string time_unit = "ms";  // of the costs of the stages
  double message_bytes = 0;      // of a value between two stages, and of its gradient
  int replicas = 1;              // d
  double gradient_bytes = 0;     // of each stage, which its replicas sum
};

/// `costs` on the first p * d devices of `cluster`: the replicas of rank r are devices r * d to r * d + d - 1. Times are
/// divided by the speeds of the devices; messages cost what the links cost. Throws ConfigError for a cluster with fewer
/// devices, and for costs that do not fit the stages.
StageCosts placed_costs(const StageCosts& costs, const Schedule& schedule, const Cluster& cluster,
                        const OnCluster& options);

}  // namespace penstock
