// ZB-1p, ZB-2p and what lies between (Zero Bubble Pipeline Parallelism: Qi et al., arXiv 2401.10241, section 3.1): the
// schedule that fits the costs of the stages and a limit on memory. Limit 1 is 1F1B's memory, 2 twice as much. With
// costs that are all the same and limit 2 (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 0I0 0F3 0I1 0W0 0I2 0W1 0I3 0W2 0W3  .
//   rank 1 |  .  1F0 1I0 1F1 1I1 1F2 1I2 1F3 1I3 1W0 1W1 1W2 1W3
//
// It is the best of many schedules, by the longest span, then by the makespan, then by memory. Each is made by running
// all stages against the clock (fill_gaps.h): some forwards for the warm-up, then I and F in turns, W wherever a rank would idle,
// where memory is short, and at the end. The schedules differ in
//   the warm-up   its length grows with the way to the last stage and back: by 1, 1.25, 1.5, 1.75 or 2 forwards per
//                 stage, by as many as the first gradient takes to come, or by as many as fill the memory; rounded
//                 down, to the nearest or up
//   short gaps    a W that is longer than the gap makes the next word late. Before the last forward ranks may idle,
//                 rather than be late, for 0, 1 or 1.5 times the gap that the warm-up leaves on the worst rank; after
//                 it for as long, for ever, or for ever in front of the last 1, 2 or 4 micro-batches alone
// Beyond 2^17 words some of these are tried, not all. 1f1b-early, zb-h1 and zb-h2 compete where the limit admits them,
// so that none of these is better.
//
// Memory: a micro-batch counts 1 until its I and Costs::weight_share from there to its W. No fewer would do: the last
// stage starts (p - 1)(F + C) after the first and has to leave (p - 1)(I + C) at the end, so with n live micro-batches,
// W counted in full, some rank idles for (p - 1)(F + I + 2C) - (n - 1)W.
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "penstock/schedule/fill_gaps.h"
#include "penstock/schedule/placement.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/turns.h"

namespace penstock {

namespace {

constexpr double forever = std::numeric_limits<double>::infinity();
constexpr double noise = 1e-9;  // what sums of times and shares may be off

ActivationCap cap_of(const ScheduleShape& shape, const Tuning& tuning) {
  return {.limit = std::max(1.0, tuning.memory_limit * std::min(shape.micro_batches, shape.ranks)),
          .weight_share = tuning.costs.weight_share};
}

GapProblem problem_of(const ScheduleShape& shape, const Tuning& tuning) {
  const Costs& costs = tuning.costs;
  GapProblem problem{.stages = {}, .message = costs.message, .micro_batches = shape.micro_batches,
                     .cap = cap_of(shape, tuning)};
  const auto at = [](const std::vector<double>& given, int s) {
    return given[given.size() == 1 ? 0 : static_cast<std::size_t>(s)];
  };
  for (int s = 0; s < shape.ranks; ++s)
    problem.stages.push_back({.forward = at(costs.forward, s), .input_grad = at(costs.input_grad, s),
                              .weight_grad = at(costs.weight_grad, s)});
  return problem;
}

/// How the warm-up grows with the way to the last stage and back.
enum class Growth { to_fill_memory, until_gradient, by_1, by_1_5, by_2, by_1_75, by_1_25 };

struct Ending {
  double factor;  // of the gap that the warm-up leaves: the allowance
  int punctual;
};

// The grid; each list begins with what wins most often, and a coarse grid takes no more than that.
constexpr Growth growths[] = {Growth::to_fill_memory, Growth::until_gradient, Growth::by_1,   Growth::by_1_5,
                              Growth::by_2,           Growth::by_1_75,        Growth::by_1_25};
constexpr double round_ups[] = {0.5, 0, 1 - noise};
constexpr double ways[] = {1, 0, 1.5};
constexpr int all = std::numeric_limits<int>::max();
constexpr Ending endings[] = {{1, all}, {0, all}, {forever, 1}, {1.5, all}, {forever, all}, {forever, 2}, {forever, 4}};

class Grid {
 public:
  explicit Grid(const GapProblem& problem) : problem_(problem), wait_(problem.stages.size(), 0.0) {
    for (std::size_t s = wait_.size() - 1; s > 0; --s)
      wait_[s - 1] = wait_[s] + problem.stages[s].forward + problem.stages[s].input_grad + 2 * problem.message;
    const std::size_t words = 3 * problem.stages.size() * static_cast<std::size_t>(problem.micro_batches);
    is_coarse_ = words > (std::size_t{1} << 17);
  }

  std::vector<GapPolicy> policies() const {
    std::vector<GapPolicy> policies;
    for (const std::vector<int>& warm_up : warm_ups()) {
      const double gap = gap_after(warm_up);
      for (const double way : first(ways, 2))
        for (const Ending& ending : first(endings, 3)) {
          const bool is_repeated = gap <= 0 && (way > 0 || (ending.factor > 0 && ending.factor < forever));
          if (is_repeated) continue;
          policies.push_back({.warm_up = warm_up, .idle_on_the_way = way * gap,
                              .idle_at_the_end = ending.factor < forever ? ending.factor * gap : forever,
                              .punctual = std::min(ending.punctual, problem_.micro_batches)});
        }
    }
    return policies;
  }

 private:
  template <class Value, std::size_t size>
  std::span<const Value> first(const Value (&list)[size], std::size_t coarse) const {
    return std::span(list).first(is_coarse_ ? coarse : size);
  }

  std::vector<std::vector<int>> warm_ups() const {
    std::vector<std::vector<int>> found;
    for (const Growth growth : first(growths, 3))
      for (const double round_up : first(round_ups, 2)) {
        std::vector<int> warm_up = warm_up_of(growth, round_up);
        if (std::find(found.begin(), found.end(), warm_up) == found.end()) found.push_back(std::move(warm_up));
      }
    return found;
  }

  std::vector<int> warm_up_of(Growth growth, double round_up) const {
    const double most = std::min<double>(problem_.micro_batches, std::floor(problem_.cap.limit + noise));
    std::vector<int> warm_up(problem_.stages.size(), 1);
    for (std::size_t s = warm_up.size() - 1; s > 0; --s) {
      const double forwards = std::min(most, 1 + std::floor(growth_at(s - 1, growth) + round_up + noise));
      warm_up[s - 1] = std::max(warm_up[s], static_cast<int>(forwards));
    }
    return warm_up;
  }

  /// How many forwards stage `s` runs for its warm-up, but for the one that every stage needs.
  double growth_at(std::size_t s, Growth growth) const {
    const auto stages = static_cast<double>(problem_.stages.size());
    const double below = stages - 1 - static_cast<double>(s);
    switch (growth) {
      case Growth::to_fill_memory: return below * (std::floor(problem_.cap.limit + noise) - 1) / (stages - 1);
      case Growth::until_gradient: {
        const double f = problem_.stages[s].forward;
        return wait_[s] < f * problem_.micro_batches ? wait_[s] / f : problem_.micro_batches;
      }
      case Growth::by_1: return below;
      case Growth::by_1_25: return 1.25 * below;
      case Growth::by_1_5: return 1.5 * below;
      case Growth::by_1_75: return 1.75 * below;
      case Growth::by_2: return 2 * below;
    }
    return below;
  }

  /// The idle time that cannot be helped on the worst stage, before its first I.
  double gap_after(const std::vector<int>& warm_up) const {
    double busiest = 0;
    for (const StageCosts& costs : problem_.stages) busiest = std::max(busiest, costs.busy());
    double gap = 0;
    for (std::size_t s = 0; s < warm_up.size(); ++s) {
      const StageCosts& costs = problem_.stages[s];
      gap = std::max(gap, wait_[s] - (warm_up[s] - 1) * costs.forward -
                              problem_.micro_batches * (busiest - costs.busy()));
    }
    return gap;
  }

  const GapProblem& problem_;
  std::vector<double> wait_;  // per stage: how long after the first F the first gradient comes
  bool is_coarse_ = false;
};

/// Orders that are there without a search, as far as the cap admits them. The first one always fits.
std::vector<Schedule> ready_made(const ScheduleShape& shape, const Tuning& tuning) {
  const double limit = cap_of(shape, tuning).limit + noise;
  Schedule early = placed_in_turns(zb_auto_generator.name, shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next()) {
    const int warm_up = static_cast<int>(std::min<double>(shape.ranks - s.value(), std::floor(limit)));
    early.orders[s.index()] = in_turns(s, MicroBatch(shape.micro_batches), {.warm_up = warm_up, .lag = 0});
  }
  std::vector<Schedule> schedules{std::move(early)};
  for (const Generator* generator : {&zb_h1_generator, &zb_h2_generator})
    if (generator->activation_bound(shape, tuning).front() <= limit)
      schedules.push_back(generator->generate(shape, tuning));
  return schedules;
}

bool is_better(const GapOutcome& a, const GapOutcome& b) {
  const double tolerance = noise * b.span;
  if (std::abs(a.span - b.span) > tolerance) return a.span < b.span;
  if (std::abs(a.makespan - b.makespan) > tolerance) return a.makespan < b.makespan;
  return a.held < b.held - noise;
}

Schedule zb_auto(const ScheduleShape& shape, const Tuning& tuning) {
  std::vector<Schedule> others = ready_made(shape, tuning);
  std::vector<Simulation> runs;
  for (const Schedule& other : others) runs.push_back(simulate(other, tuning.costs));  // refuses costs that are none

  const GapProblem problem = problem_of(shape, tuning);
  const std::vector<GapPolicy> policies = Grid(problem).policies();
  const GapPolicy* winner = &policies.front();
  GapOutcome best = fill_gaps(problem, *winner);
  for (const GapPolicy& policy : policies) {
    const GapOutcome outcome = fill_gaps(problem, policy);
    if (!is_better(outcome, best)) continue;
    best = outcome;
    winner = &policy;
  }

  Schedule schedule = placed_in_turns(zb_auto_generator.name, shape);
  fill_gaps(problem, *winner, &schedule.orders);
  for (std::size_t other = 0; other < others.size(); ++other) {
    const GapOutcome outcome{.span = runs[other].span, .makespan = runs[other].makespan, .held = forever};
    if (!is_better(outcome, best)) continue;
    best = outcome;
    schedule.orders = std::move(others[other].orders);
  }
  return schedule;
}

/// A rank that holds the most has just run F: one micro-batch at least counts in full.
std::vector<int> hold_what_the_limit_admits(const ScheduleShape& shape, const Tuning& tuning) {
  const ActivationCap cap = cap_of(shape, tuning);
  const double others = cap.weight_share > 0 ? std::floor((cap.limit - 1) / cap.weight_share + noise) : forever;
  return for_every_rank(shape, static_cast<int>(std::min<double>(shape.micro_batches, 1 + others)));
}

}  // namespace

constinit const Generator zb_auto_generator{
    .name = "zb-auto",
    .summary = "fits costs and a memory limit: ZB-1p, ZB-2p (Qi et al., arXiv 2401.10241)",
    .generate = zb_auto,
    .activation_bound = hold_what_the_limit_admits,
    .fits_limit = true,
    .memory_formula = "limit min(m, p)",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
