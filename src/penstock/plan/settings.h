// What the planner tries before it chooses a schedule: p, d, m, and the devices of each rank. Inside this module only.
#pragma once

#include <memory>
#include <vector>

#include "penstock/plan/candidates.h"
#include "penstock/plan/constraints.h"

namespace penstock {

/// Without a cluster, one setting for each p and m. With one, as make_plan() lists them. Throws ConfigError if the
/// constraints contradict the cluster or the costs.
std::vector<std::shared_ptr<const PlanSetting>> settings_of(const LayerCosts& costs,
                                                            const PlanConstraints& constraints);

/// The setting of a plan for a cluster: its devices, found by their names. Throws ConfigError for an unknown device.
PlanSetting setting_of(const Plan& plan, const LayerCosts& costs, const PlanConstraints& constraints);

}  // namespace penstock
