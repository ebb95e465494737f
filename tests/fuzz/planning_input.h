// The functions under test of the fuzzers of schedules, traces, costs, plans, tuning records and kernel selections. The
// test that replays their corpora calls them too. They throw if a property does not hold. Refusing the input is correct.
#pragma once

#include <string>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/plan/plan.h"
#include "penstock/plan/plan_file.h"
#include "penstock/plan/stage_cost_text.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/trace.h"
#include "tests/base/error_text.h"

namespace penstock {

using test::accepted;

/// What `read` makes of `text`, which must be equal after write() and another read(); nothing if it is refused.
template <class Refusal, class Read, class Write>
auto read_twice(std::string_view text, Read read, Write write) {
  auto value = accepted<Refusal>([&] { return read(text); });
  if (value) require<InternalError>(read(write(*value)) == *value, "it does not read back");
  return value;
}

/// Validates, simulates, draws and writes a schedule that was read from text. None of them may fail unexpectedly.
inline void use_schedule(const Schedule& schedule) {
  require<InternalError>(read_schedule(write_schedule(schedule)) == schedule, "the text form does not read back");
  const Validation result = validate(schedule);
  require<InternalError>(result.ok == result.reason.empty(), "a result without a reason");
  timeline_grid(schedule, {.marked = result.cell, .max_columns = 40});
  try {
    simulate(schedule, {.forward = {1}, .input_grad = {2}, .weight_grad = {1}, .update = {0}, .message = 0.5});
  } catch (const ScheduleError&) {
    require<InternalError>(!result.ok, "the schedule is valid, but cannot be simulated");
  }
  for (const bool messages : {false, true})  // refused: skip links, idle ranks, instructions that are missing
    accepted<Misuse>([&] { return read_torch_csv(write_torch_csv(schedule, {.messages = messages})); });
  if (!result.ok) return;
  result.require_ok(schedule);
  const Links links = links_of(schedule);
  const Schedule again = lower(strip(schedule), links, {.reduce = true, .norm = true});
  const int posts = least_posts(again, links);
  if (posts == 0) return validate(again, {.links = links, .activation_bound = {}}).require_ok(again);
  validate(again, {.links = links, .activation_bound = {}, .posts = posts}).require_ok(again);
  const bool needs_all =
      posts == 1 || !validate(again, {.links = links, .activation_bound = {}, .posts = posts - 1}).ok;
  require<InternalError>(needs_all, "fewer posts than least_posts() suffice");
}

inline void try_schedule(std::string_view text) {
  const auto schedule = accepted<DataError>([&] { return read_schedule(text); });
  if (!schedule) return;
  use_schedule(*schedule);
}

inline void try_torch_csv(std::string_view text) {
  if (const auto csv = accepted<DataError>([&] { return read_torch_csv(text); })) use_schedule(csv->schedule);
}

inline void try_trace(std::string_view text) {
  const auto trace = read_twice<DataError>(text, read_trace, write_trace);
  if (!trace) return;
  // Refused: no complete step, a schedule that cannot run, instructions of another schedule.
  accepted<Misuse>([&] { return to_table(account(*trace)) + step_svg(*trace); });
  accepted<ScheduleError>([&] { return check_order(*trace); });
}

inline void try_layer_costs(std::string_view text) {
  auto costs = read_twice<DataError>(text, read_layer_costs, write_layer_costs);
  // Only small costs are planned, because the file determines the length of schedules.
  if (!costs || costs->layers.size() > 8 || costs->ranks > 4) return;
  costs->micro_batches = {1, static_cast<int>(std::min<std::int64_t>(3, costs->samples))};
  // Refused: fewer layers than ranks, too little memory, costs whose sum is not finite.
  accepted<Misuse>([&] {
    const Planned planned = make_plan(*costs);
    require<InternalError>(read_plan(write_plan(planned.plan)) == planned.plan, "the plan does not read back");
    return to_table(planned) + explanation(planned);
  });
}

inline void try_stage_costs(std::string_view text) {
  const auto costs = accepted<DataError>([&] { return read_stage_costs(text); });
  if (!costs) return;
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 3}));
  // Refused: costs for another number of stages, or whose sum is not finite.
  accepted<Misuse>([&] { return simulate(schedule, *costs); });
}

inline void try_cluster(std::string_view text) {
  const auto cluster = read_twice<Misuse>(text, read_cluster, write_cluster);
  if (!cluster || cluster->devices().size() > 6) return;
  LayerCosts costs;
  costs.time_unit = "ms";
  costs.samples = 4;
  costs.layers = {{"a", 1, 1, 1, 10, 100, 10}, {"b", 1, 1, 1, 10, 100, 10}, {"c", 1, 2, 1, 10, 100, 10}};
  // Refused: too little memory, costs whose sum is not finite.
  accepted<Misuse>([&] {
    const Planned planned = make_plan(costs, {.schedules = {"1f1b"}, .cluster = *cluster, .recompute = true});
    require<InternalError>(read_plan(write_plan(planned.plan)) == planned.plan, "the plan does not read back");
    return to_table(planned) + explanation(planned);
  });
}

inline void try_plan(std::string_view text) { read_twice<Misuse>(text, read_plan, write_plan); }

inline void try_tuning_record(std::string_view text) {
  read_twice<Misuse>(text, read_tuning_record, write_tuning_record);
}

inline void try_kernel_selection(std::string_view text) {
  const auto selection = accepted<DataError>([&] { return kernels::KernelSelection::from_text(text); });
  if (!selection) return;
  const std::string written = selection->to_text();
  require<InternalError>(kernels::KernelSelection::from_text(written).to_text() == written, "it does not read back");
  selection->fingerprint();
}

}  // namespace penstock
