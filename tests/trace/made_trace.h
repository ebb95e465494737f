// Synthetic traces: the spans that ranks record if their times are exactly those of a simulation.
#pragma once

#include <cmath>
#include <string>

#include "penstock/trace/trace.h"

namespace penstock {

struct MadeRun {
  std::string schedule = "1f1b";
  ScheduleShape shape{.ranks = 2, .micro_batches = 4};
  StageCosts costs{};  // milliseconds
  int replicas = 1;
  int steps = 1;
  double slowdown = 0;  // step i takes (1 + slowdown * i) times as long
};

inline std::int64_t ns_of(double ms) { return std::llround(ms * 1e6); }

/// Lets a rank's step begin and end later.
inline void delay(RankStep& step, std::int64_t by_ns) {
  step.begin_ns += by_ns;
  step.end_ns += by_ns;
  for (Span& span : step.spans) span.begin_ns += by_ns, span.end_ns += by_ns;
}

/// One rank's step, which begins at 0. `slots` are the compute and STEP instructions of `order`, with their times in
/// ms.
inline RankStep made_step(const Order& order, const std::vector<Slot>& slots, double scale, double message_ms) {
  RankStep step;
  std::int64_t cursor = 0;
  auto slot = slots.begin();
  for (const Instruction& instruction : order) {
    if (is_compute(instruction.op()) || instruction.op() == Op::step) {
      const Activity activity = is_compute(instruction.op()) ? Activity::compute : Activity::update;
      step.spans.push_back({instruction, activity, ns_of(slot->begin * scale), ns_of(slot->end * scale), 0});
      cursor = step.spans.back().end_ns;
      ++slot;
    } else if (is_receive(instruction.op())) {
      const std::int64_t until = std::max(cursor, ns_of(slot->begin * scale));
      step.spans.push_back({instruction, Activity::wait, cursor, until, ns_of(message_ms * scale)});
      cursor = until;
    } else {
      step.spans.push_back(
          {instruction, is_send(instruction.op()) ? Activity::communicate : Activity::update, cursor, cursor, 0});
    }
  }
  step.end_ns = cursor;
  return step;
}

inline Trace made_trace(const MadeRun& run) {
  Trace trace;
  trace.schedule = lower(generate(run.schedule, run.shape));
  trace.replicas = run.replicas;
  trace.settings = {{"threads per rank", "1"}};
  trace.ranks.resize(static_cast<std::size_t>(run.shape.ranks * run.replicas));
  const Simulation simulation = simulate(trace.schedule, run.costs, {.links = {}, .keep_slots = true});
  std::int64_t begin = 1'000'000;
  for (int i = 0; i < run.steps; ++i) {
    const double scale = 1 + run.slowdown * i;
    for (std::size_t world = 0; world < trace.ranks.size(); ++world) {
      const std::size_t rank = world / static_cast<std::size_t>(run.replicas);
      RankStep step = made_step(trace.schedule.orders[rank], simulation.slots[rank], scale, run.costs.message);
      step.step = static_cast<std::uint64_t>(i + 1);
      delay(step, begin);
      trace.ranks[world].push_back(std::move(step));
    }
    begin += ns_of(simulation.makespan * scale) + 1000;
  }
  return trace;
}

}  // namespace penstock
