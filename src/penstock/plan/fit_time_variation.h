// Estimates the variation of instruction times from measured steps: steps are longer than predicted without variation.
#pragma once

#include <functional>
#include <span>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/plan_file.h"

namespace penstock {

/// The measured time of a step of `plan`.
struct MeasuredStep {
  Plan plan;
  double makespan = 0;  // in the unit of the costs
};

/// The LayerCosts::time_variation for which predict() is right on average over `steps`: the product of predicted
/// divided by measured makespans is 1. It is 0 if the steps took no longer than predicted without variation, and at
/// most 0.5. Throws like predict().
double fitted_time_variation(const LayerCosts& costs, std::span<const MeasuredStep> steps);

/// The same for another model: `predicted` returns the makespan of a plan's step at a time variation.
double fitted_time_variation(const std::function<double(const Plan& plan, double time_variation)>& predicted,
                             std::span<const MeasuredStep> steps);

}  // namespace penstock
