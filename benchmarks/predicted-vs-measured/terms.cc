#include "terms.h"

#include <penstock/plan/layer_sums.h>
#include <penstock/schedule/simulate.h>

namespace penstock {
namespace {

void without_caching(StepModel& model) {
  model.costs.forward_cache_saving = model.costs.input_grad_cache_saving = model.costs.weight_grad_cache_saving = {0};
}

/// As if the layers had been timed while the other ranks idle.
void without_slowdown(StepModel& model) {
  StageCosts& costs = model.costs;
  for (std::vector<double>* times :
       {&costs.forward, &costs.input_grad, &costs.weight_grad, &costs.weight_grad_fused, &costs.backward,
        &costs.forward_cache_saving, &costs.input_grad_cache_saving, &costs.weight_grad_cache_saving})
    for (double& time : *times) time /= model.slowdown_under_load;
}

void without_update(StepModel& model) { model.costs.update = {0}; }

void without_overhead(StepModel& model) { model.costs.overhead = 0; }

constexpr Term all_terms[] = {{"caching", without_caching},
                              {"slowdown under load", without_slowdown},
                              {"update", without_update},
                              {"per-instruction overhead", without_overhead}};

}  // namespace

StepModel model_of(const Plan& plan, const LayerCosts& costs) {
  Stages stages;
  int next = 0;
  for (const std::vector<std::string>& layers : plan.stages) {
    const int begin = next;
    next += static_cast<int>(layers.size());
    stages.push_back({begin, next});
  }
  const LayerSums sums(costs, plan.schedule.micro_batches);
  return {stage_costs(sums, plan.schedule.rank_of_stage, stages), costs.slowdown_under_load};
}

double makespan(const Plan& plan, const StepModel& model) { return simulate(plan.schedule, model.costs).makespan; }

std::span<const Term> terms() { return all_terms; }

}  // namespace penstock
