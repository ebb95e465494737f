#include "penstock/trace/complete_steps.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/trace/made_trace.h"

namespace penstock::complete_steps_test {
namespace {

std::vector<std::uint64_t> numbers(const Trace& trace) {
  std::vector<std::uint64_t> result;
  for (const WorldStep& step : complete_steps(trace)) result.push_back(step.step);
  return result;
}

TEST(CompleteSteps, leaves_out_the_first_of_several_and_those_that_a_rank_did_not_run) {
  EXPECT_EQ(numbers(made_trace({.steps = 1})), (std::vector<std::uint64_t>{1}));
  Trace trace = made_trace({.steps = 4});
  EXPECT_EQ(numbers(trace), (std::vector<std::uint64_t>{2, 3, 4}));
  trace.ranks[1].erase(trace.ranks[1].begin() + 2);
  EXPECT_EQ(numbers(trace), (std::vector<std::uint64_t>{2, 4}));
}

TEST(CompleteSteps, leaves_out_steps_of_fewer_micro_batches_and_evaluations) {
  Trace trace = made_trace({.steps = 4});
  const Trace shorter = made_trace({.shape = {.ranks = 2, .micro_batches = 3}, .steps = 4});
  const Trace forward = made_trace({.schedule = "forward-only", .steps = 4});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    trace.ranks[rank][1] = shorter.ranks[rank][1];
    trace.ranks[rank][2] = forward.ranks[rank][2];
  }
  EXPECT_EQ(numbers(trace), (std::vector<std::uint64_t>{4}));
}

TEST(CompleteSteps, reports_that_there_is_none) {
  Trace trace = made_trace({});
  trace.ranks[1].clear();
  EXPECT_TRUE(test::says(test::error_text<DataError>([&] { complete_steps(trace); }),
                         "no step that all 2 ranks ran to its end with 4 micro-batches: ", "more than some 500,000"));
  Trace without_compute = made_trace({});
  for (Order& order : without_compute.schedule.orders) order.clear();
  for (auto& steps : without_compute.ranks) steps.front().spans.clear();
  EXPECT_THROW(complete_steps(without_compute), DataError);
}

TEST(CompleteSteps, bounds_are_compute_and_update) {
  Trace trace = made_trace({.costs = {.update = {0.5}}});
  // Waits before and after do not count.
  trace.ranks[1][0].spans.front().begin_ns = trace.ranks[1][0].begin_ns = 0;
  trace.ranks[1][0].end_ns += 900'000'000;
  const WorldStep step = complete_steps(trace).front();
  EXPECT_EQ(step.begin_ns, 1'000'000);
  EXPECT_EQ(step.makespan_ns(), ns_of(15.5));
}

TEST(CompleteSteps, median_is_by_makespan) {
  Trace trace = made_trace({.steps = 6, .slowdown = -0.1});  // 2..6 count, each faster than the one before
  EXPECT_EQ(median_step(trace).step, 4u);
  for (auto& steps : trace.ranks) steps.pop_back();  // 2..5: the faster of 3 and 4
  EXPECT_EQ(median_step(trace).step, 4u);
}

TEST(CompleteSteps, replicas_of_a_rank_are_consecutive) {
  const Trace trace = made_trace({.replicas = 3});
  EXPECT_EQ(trace.ranks.size(), 6u);
  EXPECT_EQ(pipeline_rank(trace, 2), Rank(0));
  EXPECT_EQ(pipeline_rank(trace, 3), Rank(1));
  EXPECT_EQ(complete_steps(trace).front().ranks.size(), 6u);
}

TEST(StagesOf, lists_stages_in_ascending_order) {
  Schedule schedule;
  schedule.rank_of_stage = {Rank(0), Rank(1), Rank(1), Rank(0)};
  EXPECT_EQ(stages_of(schedule, Rank(0)), (std::vector<StageId>{StageId(0), StageId(3)}));
  EXPECT_EQ(stages_of(schedule, Rank(1)), (std::vector<StageId>{StageId(1), StageId(2)}));
}

}  // namespace
}  // namespace penstock::complete_steps_test
