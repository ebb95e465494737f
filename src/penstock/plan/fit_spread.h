// How much words vary, from how much longer steps took than their words explain.
#pragma once

#include <span>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/plan_file.h"

namespace penstock {

/// A step of these words in this cut, as it was measured.
struct MeasuredStep {
  Plan plan;
  double makespan = 0;  // in the unit of the costs
};

/// The LayerCosts::spread with which foretell() is right for `steps` on the whole (the product of foretold over
/// measured is 1): 0 where they took no longer than foretold without any, at most 0.5. Throws as foretell().
double fitted_spread(const LayerCosts& costs, std::span<const MeasuredStep> steps);

}  // namespace penstock
