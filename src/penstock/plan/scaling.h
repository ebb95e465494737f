// What more devices are worth: a plan for each number of devices of a cluster, for the same samples per step.
#pragma once

#include <string>
#include <vector>

#include "penstock/plan/planner.h"

namespace penstock {

/// The plan for the first `devices` devices.
struct ScalePoint {
  int devices = 0;
  Candidate chosen;
  double step = 0;              // predicted, in the unit of the costs
  double samples_per_unit = 0;  // samples per unit of time
  double efficiency = 0;        // samples per unit of time and device, relative to the first point
};

/// One point for each of `counts`, by make_plan() with the first devices of PlanConstraints::cluster. Throws as
/// make_plan(), and ConfigError without a cluster or for more devices than it has.
std::vector<ScalePoint> scaling_curve(const LayerCosts& costs, const PlanConstraints& constraints,
                                      const std::vector<int>& counts);

/// A line for each point, with a bar as long as its samples per unit of time.
std::string to_table(const std::vector<ScalePoint>& points);

}  // namespace penstock
