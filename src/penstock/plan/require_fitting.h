// The error of a planner whose candidates all need more memory than there is. Inside this module only.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "penstock/plan/candidates.h"
#include "penstock/plan/constraints.h"

namespace penstock {

/// The candidate that is chosen with other constraints; none if the error is to name no change.
using Replan = std::function<std::optional<Candidate>(const PlanConstraints&)>;

/// Throws ScheduleError unless the first of `outcomes`, which are sorted, fits. The message names the smallest cap or
/// limit that would do; on a cluster the change with which `plan` finds a candidate that fits.
void require_fitting(const LayerCosts& costs, const PlanConstraints& constraints, const std::vector<Outcome>& outcomes,
                     const Replan& plan);

}  // namespace penstock
