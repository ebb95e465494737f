#include "penstock/schedule/generators/fill_gaps.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>

#include "penstock/schedule/simulate.h"
#include "penstock/schedule/timeline_grid.h"
#include "penstock/schedule/validate.h"

namespace penstock::fill_gaps_test {
namespace {

/// A schedule without instructions, with one stage per rank.
Schedule placed(int stages, MicroBatch end) {
  Schedule schedule{"filled", end.value(), {}, std::vector<Order>(static_cast<std::size_t>(stages))};
  for (int s = 0; s < stages; ++s) schedule.rank_of_stage.push_back(Rank(s));
  return schedule;
}

Schedule filled(const GapProblem& problem, const GapPolicy& policy) {
  Schedule schedule = placed(static_cast<int>(problem.times.stages()), MicroBatch(problem.times.micro_batches()));
  fill_gaps(problem, policy, &schedule.orders);
  return schedule;
}

GapProblem two_stages(const StageCosts& costs = StageCosts::unit()) {
  return {InstructionTimes(costs, placed(2, MicroBatch(3))), {.limits = {3, 3}, .weight_share = 1}};
}

TEST(FillGaps, a_gap_as_long_as_w_is_filled) {
  EXPECT_EQ(timeline_grid(filled(two_stages(), {.warm_up = {2, 1}, .idle_at_the_end = 100, .punctual = 3})),
            "rank 0 | 0F0 0F1  .  0I0 0F2 0I1 0W0 0I2 0W1 0W2\n"
            "rank 1 |  .  1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2\n");
}

TEST(FillGaps, a_forward_without_memory_waits_for_a_w) {
  GapProblem problem = two_stages();
  problem.cap.limits = {2, 2};
  EXPECT_EQ(timeline_grid(filled(problem, {.warm_up = {2, 1}, .idle_at_the_end = 100, .punctual = 3})),
            "rank 0 | 0F0 0F1  .  0I0 0W0 0F2 0I1 0W1 0I2 0W2\n"
            "rank 1 |  .  1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2\n");
}

/// Without a W before its last I, stage 0 idles for half of a W there.
TEST(FillGaps, a_shorter_gap_is_filled_when_the_allowance_is_exhausted) {
  const GapProblem problem = two_stages({.forward = {1, 0.5}});
  const auto instructions = [&](const GapPolicy& policy) {
    const Schedule schedule = filled(problem, policy);
    std::string text;
    for (const Instruction& instruction : schedule.orders[0]) text += to_string(instruction) + " ";
    return text;
  };
  const double forever = 1e9;
  const std::string idles = "0F0 0F1 0I0 0F2 0I1 0I2 0W0 0W1 0W2 ";
  const std::string fills = "0F0 0F1 0I0 0F2 0I1 0W0 0I2 0W1 0W2 ";
  EXPECT_EQ(instructions({.warm_up = {2, 1}, .idle_at_the_end = forever, .punctual = 3}), idles);
  EXPECT_EQ(instructions({.warm_up = {2, 1}, .idle_at_the_end = 0, .punctual = 3}), fills);
  EXPECT_EQ(instructions({.warm_up = {2, 1}, .idle_at_the_end = forever, .punctual = 0}), fills);
}

TEST(FillGaps, agrees_with_simulate_and_respects_the_cap) {
  EXPECT_TRUE(rc::check("any costs, any policy", [] {
    const auto quarters = [](int from) { return *rc::gen::inRange(from, 9) / 4.0; };
    GapPolicy policy{.warm_up = {},
                     .idle_on_the_way = quarters(0),
                     .idle_at_the_end = quarters(0),
                     .punctual = *rc::gen::inRange(0, 12)};
    StageCosts costs{.forward = {}, .input_grad = {}, .weight_grad = {}, .update = {0}, .message = quarters(0)};
    const int stages = *rc::gen::inRange(1, 6);
    for (int s = 0; s < stages; ++s) {
      costs.forward.push_back(quarters(0));
      costs.input_grad.push_back(quarters(0));
      costs.weight_grad.push_back(quarters(0));
      policy.warm_up.push_back(*rc::gen::inRange(1, 8));
    }
    std::sort(policy.warm_up.begin(), policy.warm_up.end(), std::greater<>());
    costs.weight_share = *rc::gen::inRange(0, 5) / 4.0;
    costs.overhead = quarters(0);
    ActivationCap cap{.limits = {}, .weight_share = costs.weight_share};
    for (const int forwards : policy.warm_up) cap.limits.push_back(forwards + quarters(0));
    const GapProblem problem{InstructionTimes(costs, placed(stages, MicroBatch(*rc::gen::inRange(1, 12)))), cap};
    const Schedule schedule = filled(problem, policy);
    const GapOutcome outcome = fill_gaps(problem, policy);
    const Simulation run = simulate(schedule, costs);
    RC_ASSERT(outcome.span == run.span);
    RC_ASSERT(outcome.makespan == run.makespan);
    RC_ASSERT(outcome.held == *std::max_element(run.peak_activations.begin(), run.peak_activations.end()));
    for (std::size_t s = 0; s < cap.limits.size(); ++s) RC_ASSERT(run.peak_activations[s] <= cap.limits[s]);
    RC_ASSERT(validate(schedule).ok);
  }));
}

}  // namespace
}  // namespace penstock::fill_gaps_test
