// How much instructions vary, from how much longer steps took than their instructions explain.
#pragma once

#include <span>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/plan_file.h"

namespace penstock {

/// A step of these instructions in this partition, as it was measured.
struct MeasuredStep {
  Plan plan;
  double makespan = 0;  // in the unit of the costs
};

/// The LayerCosts::time_variation with which predict() is right for `steps` on the whole (the product of predicted over
/// measured is 1): 0 where they took no longer than predicted without any, at most 0.5. Throws as predict().
double fitted_time_variation(const LayerCosts& costs, std::span<const MeasuredStep> steps);

}  // namespace penstock
