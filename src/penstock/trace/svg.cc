#include "penstock/trace/svg.h"

#include <algorithm>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/trace/account.h"
#include "penstock/trace/complete_steps.h"
#include "penstock/trace/timeline.h"

namespace penstock {
namespace {

constexpr double drawing_width = 980;

Band predicted(const Trace& trace, const Account& account) {
  const Simulation simulation =
      simulate(trace.schedule, measured_costs(trace), {.links = executed_links(trace.schedule), .keep_slots = true});
  double begin = simulation.makespan;
  for (const auto& slots : simulation.slots)
    for (const Slot& slot : slots) begin = std::min(begin, slot.begin);

  Band band{say("predicted with the times measured below: ", shortened(account.predicted_ms), " ms, idle ",
                shortened(100 * account.bubble_predicted, 1), " %"),
            simulation.makespan,
            {}};
  for (std::size_t rank = 0; rank < simulation.slots.size(); ++rank) {
    const auto stages = stages_of(trace.schedule, Rank(static_cast<std::int32_t>(rank)));
    band.rows.push_back(row_of(rank, stages));
    for (const Slot& slot : simulation.slots[rank])
      band.rows.back().pieces.push_back(piece_of(slot.instruction, stages, {slot.begin - begin, slot.end - begin}));
  }
  return band;
}

Band measured(const Trace& trace, const Account& account) {
  const WorldStep step = median_step(trace);
  const auto ms_since_begin = [&](std::int64_t ns) {
    return to_ms(std::clamp(ns, step.begin_ns, step.end_ns) - step.begin_ns);
  };
  Band band{
      say("measured ", shortened(account.measured_ms), " ms, idle ", shortened(100 * account.bubble_measured, 1), " %"),
      ms_since_begin(step.end_ns),
      {}};
  // Messages whose boxes would be too narrow to see are left out, also from the legend.
  const double least = 0.4 / drawing_width * std::max(account.predicted_ms, account.measured_ms);
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    const auto stages = stages_of(trace.schedule, pipeline_rank(trace, rank));
    Row row = row_of(rank, stages);
    if (trace.replicas > 1) row.place += say(", replica ", rank % static_cast<std::size_t>(trace.replicas));
    for (const Span& span : step.ranks[rank]->spans) {
      const TimeSpan time{ms_since_begin(span.begin_ns), ms_since_begin(span.end_ns)};
      const bool is_visible = span.activity != Activity::communicate || time.end - time.begin >= least;
      if (span.activity == Activity::wait || time.end <= time.begin || !is_visible) continue;
      row.pieces.push_back(piece_of(span.instruction, stages, time));
    }
    band.rows.push_back(std::move(row));
  }
  return band;
}

}  // namespace

std::string step_svg(const Trace& trace) {
  const Account figures = account(trace);
  const Schedule& schedule = trace.schedule;
  std::string facts = say(schedule.rank_count(), " pipeline ranks, ", schedule.stage_count(), " stages, ",
                          schedule.micro_batches, " micro-batches");
  if (trace.replicas > 1) facts += say(", ", trace.replicas, " replicas");
  facts += say("; step ", figures.step, ", the median of those traced");
  return draw(
      {.title = say(schedule.name.empty() ? "schedule" : schedule.name, ": one training step, predicted and measured"),
       .facts = {facts},
       .bands = {predicted(trace, figures), measured(trace, figures)},
       .time_unit = "ms",
       .notes = {},
       .width = drawing_width});
}

}  // namespace penstock
