// The functions under test of the fuzzers of cost files, plan files and tuning files. The test that replays their
// corpus calls them too. They throw if a property does not hold. Refusing the input is correct.
#pragma once

#include <string_view>

#include "penstock/base/error.h"
#include "penstock/plan/plan.h"
#include "penstock/plan/plan_file.h"
#include "penstock/plan/stage_cost_text.h"

namespace penstock {

inline void try_layer_costs(std::string_view text) {
  LayerCosts costs;
  try {
    costs = read_layer_costs(text);
  } catch (const DataError&) {
    return;
  }
  require<InternalError>(read_layer_costs(write_layer_costs(costs)) == costs, "the costs do not read back");
  // Only small costs are planned, because the file determines the length of schedules.
  if (costs.layers.size() > 8 || costs.ranks > 4) return;
  costs.micro_batches = {1, static_cast<int>(std::min<std::int64_t>(3, costs.samples))};
  try {
    const Planned planned = make_plan(costs);
    to_table(planned);
    explanation(planned);
    require<InternalError>(read_plan(write_plan(planned.plan)) == planned.plan, "the plan does not read back");
  } catch (const Misuse&) {  // fewer layers than ranks, too little memory, costs whose sum is not finite
  }
}

inline void try_plan(std::string_view text) {
  Plan plan;
  try {
    plan = read_plan(text);
  } catch (const Misuse&) {
    return;
  }
  require<InternalError>(read_plan(write_plan(plan)) == plan, "the plan does not read back");
}

inline void try_stage_costs(std::string_view text) {
  StageCosts costs;
  try {
    costs = read_stage_costs(text);
  } catch (const DataError&) {
    return;
  }
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 3}));
  try {
    simulate(schedule, costs);
  } catch (const Misuse&) {  // costs for another number of stages, or whose sum is not finite
  }
}

inline void try_tuning_record(std::string_view text) {
  TuningRecord record;
  try {
    record = read_tuning_record(text);
  } catch (const Misuse&) {
    return;
  }
  require<InternalError>(read_tuning_record(write_tuning_record(record)) == record, "the record does not read back");
}

}  // namespace penstock
