// The terms of the planner's model of a step, for predictions without one of them.
#pragma once

#include <span>

#include <penstock/plan/plan.h>

namespace penstock {

/// What predict() simulates for one plan.
struct StepModel {
  StageCosts costs;
  double slowdown_under_load = 1;  // the times in `costs` contain this factor
};

StepModel model_of(const Plan& plan, const LayerCosts& costs);

/// The simulated makespan, in the unit of the costs.
double makespan(const Plan& plan, const StepModel& model);

struct Term {
  const char* name;
  void (*leave_out)(StepModel&);
};

/// The terms of the model beside the times of F, I, W, B and messages.
std::span<const Term> terms();

}  // namespace penstock
