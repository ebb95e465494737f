// ZB-1p, ZB-2p and schedules between them (Zero Bubble Pipeline Parallelism: Qi et al., arXiv 2401.10241, section 3.1).
// The schedule adapts to the costs of the stages and to a memory limit. Limit 1 is 1F1B's memory, limit 2 twice as
// much; of a limit in bytes each stage uses as many micro-batches as fit. With equal costs and limit 2 (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 0I0 0F3 0I1 0W0 0I2 0W1 0I3 0W2 0W3  .
//   rank 1 |  .  1F0 1I0 1F1 1I1 1F2 1I2 1F3 1I3 1W0 1W1 1W2 1W3
//
// The result is the best of many schedules: the one with the shortest span, then the shortest makespan, then the least
// memory. Each is made by a simulation of all stages (fill_gaps.h): the forwards of the warm-up, then I and F
// alternately, and W when a rank would idle, when memory is short, and at the end. gap_policies() lists the variants.
// 1f1b-early, zb-h1 and zb-h2 are candidates too if the limit permits them, so that none of them is better than the
// result. At limit 1 the result is as fast as ZB-H1 in all cases of the paper, and has the same order for m >= p and
// equal costs.
//
// Memory: a micro-batch counts 1 until its I, and StageCosts::weight_share from there to its W. If it counted 1 until
// its W, no schedule could reach the paper's ZB-2p: the last stage begins (p - 1)(F + C) after the first one, and its
// last gradient takes (p - 1)(I + C) to return, so that with n live micro-batches some rank idles for at least
// (p - 1)(F + I + 2C) - (n - 1)W.
#include <algorithm>
#include <cmath>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/generators/fill_gaps.h"
#include "penstock/schedule/generators/placement.h"
#include "penstock/schedule/simulate.h"

namespace penstock {
namespace {

ActivationCap cap_of(const ScheduleShape& shape, const Tuning& tuning) {
  ActivationCap cap{.limits = {}, .weight_share = tuning.costs.weight_share};
  const auto* in_bytes = std::get_if<BytesPerRank>(&tuning.memory_limit);
  for (std::size_t s = 0; s < static_cast<std::size_t>(shape.ranks); ++s) {
    double limit = shape.micro_batches;
    if (!in_bytes)
      limit = std::get<TimesOf1F1B>(tuning.memory_limit).times * std::min(shape.micro_batches, shape.ranks);
    else if (const double own = value_of_stage(tuning.costs.activation_bytes, s); own > 0)
      limit = std::min(limit, static_cast<double>(in_bytes->bytes) / own);
    cap.limits.push_back(std::max(1.0, limit));
  }
  return cap;
}

/// Whether every stage of `generator` stays within the cap.
bool is_permitted(const ScheduleGenerator& generator, const ScheduleShape& shape, const Tuning& tuning,
                  const ActivationCap& cap) {
  const std::vector<int> bound = generator.activation_bound(shape, tuning);
  for (std::size_t s = 0; s < bound.size(); ++s)
    if (bound[s] > cap.limits[s] + rounding_error) return false;
  return true;
}

/// The schedules that need no search, if the cap permits them. The first one always fits.
std::vector<Schedule> ready_made(const ScheduleShape& shape, const Tuning& tuning) {
  const ActivationCap cap = cap_of(shape, tuning);
  double least = shape.micro_batches;  // of this stage and those before it: a later stage never warms up with more
  Schedule early = placed_round_robin(shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next()) {
    least = std::min(least, std::floor(cap.limits[s.index()] + rounding_error));
    const int warm_up = static_cast<int>(std::min<double>(shape.ranks - s.value(), least));
    early.orders[s.index()] = alternating_order(s, MicroBatch(shape.micro_batches), {.warm_up = warm_up, .lag = 0});
  }
  std::vector<Schedule> schedules{std::move(early)};
  for (const char* name : {"zb-h1", "zb-h2"})
    if (is_permitted(find_generator(name), shape, tuning, cap)) schedules.push_back(generate(name, shape, tuning));
  return schedules;
}

bool is_better(const GapOutcome& a, const GapOutcome& b) {
  const double tolerance = rounding_error * b.span;
  if (std::abs(a.span - b.span) > tolerance) return a.span < b.span;
  if (std::abs(a.makespan - b.makespan) > tolerance) return a.makespan < b.makespan;
  return a.held < b.held - rounding_error;
}

Schedule zb_auto(const ScheduleShape& shape, const Tuning& tuning) {
  std::vector<Schedule> others = ready_made(shape, tuning);
  std::vector<Simulation> runs;
  for (const Schedule& other : others) runs.push_back(simulate(other, tuning.costs));  // throws for invalid costs

  Schedule schedule = placed_round_robin(shape);
  const GapProblem problem{InstructionTimes(tuning.costs, schedule), cap_of(shape, tuning)};
  const std::vector<GapPolicy> policies = gap_policies(problem);
  const GapPolicy* winner = &policies.front();
  GapOutcome best = fill_gaps(problem, *winner);
  for (const GapPolicy& policy : policies) {
    const GapOutcome outcome = fill_gaps(problem, policy);
    if (!is_better(outcome, best)) continue;
    best = outcome;
    winner = &policy;
  }

  fill_gaps(problem, *winner, &schedule.orders);
  for (std::size_t other = 0; other < others.size(); ++other) {
    const GapOutcome outcome{.span = runs[other].span, .makespan = runs[other].makespan, .held = best.held};
    if (!is_better(outcome, best)) continue;
    best = outcome;
    schedule.orders = std::move(others[other].orders);
  }
  return schedule;
}

/// A rank is at its peak right after an F, so at least one of its micro-batches counts in full.
std::vector<int> hold_what_the_limit_admits(const ScheduleShape& shape, const Tuning& tuning) {
  const ActivationCap cap = cap_of(shape, tuning);
  const int m = shape.micro_batches;
  std::vector<int> bound;
  for (const double limit : cap.limits) {
    const double others = cap.weight_share > 0 ? std::floor((limit - 1) / cap.weight_share + rounding_error) : m;
    bound.push_back(static_cast<int>(std::min<double>(m, 1 + others)));
  }
  return bound;
}

}  // namespace

extern constinit const ScheduleGenerator zb_auto_generator{
    .name = "zb-auto",
    .summary = "fits costs and a memory limit: ZB-1p, ZB-2p (Qi et al., arXiv 2401.10241)",
    .generate = zb_auto,
    .activation_bound = hold_what_the_limit_admits,
    .fits_limit = true,
    .memory_formula = "limit min(m, p)",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
