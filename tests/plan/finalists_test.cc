#include "penstock/plan/candidate.h"

#include <gtest/gtest.h>

#include "penstock/plan/planner.h"
#include "tests/plan/small_costs.h"

namespace penstock::finalists_test {
namespace {

Candidate candidate_of(const char* schedule, WeightGradients mode, double makespan) {
  Candidate candidate;
  candidate.schedule = schedule;
  candidate.weight_gradients = mode;
  candidate.prediction.makespan = makespan;
  return candidate;
}

/// The schedules of the finalists. Each candidate has a plan of its own, but "twin" has that of the first.
std::vector<std::string> chosen(const std::vector<Candidate>& candidates, int most) {
  std::vector<std::string> names;
  for (const std::size_t index : finalists_of(candidates, most, [&](std::size_t i) {
         const Candidate& own = candidates[i].schedule == "twin" ? candidates[0] : candidates[i];
         Plan plan;
         plan.stages = {{own.schedule, to_string(own.weight_gradients)}};
         return plan;
       }))
    names.push_back(candidates[index].schedule);
  return names;
}

using Names = std::vector<std::string>;

TEST(Finalists, are_the_best_of_both_modes_and_those_that_are_nearly_as_short) {
  const std::vector<Candidate> candidates{
      candidate_of("a", WeightGradients::stream, 100), candidate_of("b", WeightGradients::stream, 103),
      candidate_of("c", WeightGradients::stream, 109), candidate_of("d", WeightGradients::stream, 111),
      candidate_of("e", WeightGradients::fused, 140),  candidate_of("f", WeightGradients::fused, 141)};
  EXPECT_EQ(chosen(candidates, 9), (Names{"a", "e", "b", "c"}));
  EXPECT_EQ(chosen(candidates, 3), (Names{"a", "e", "b"}));
  EXPECT_EQ(chosen(candidates, 1), Names{"a"});
  EXPECT_EQ(chosen(candidates, 0), Names{});
}

TEST(Finalists, contain_the_best_schedule_in_the_other_mode) {
  const std::vector<Candidate> candidates{
      candidate_of("a", WeightGradients::stream, 100), candidate_of("b", WeightGradients::stream, 101),
      candidate_of("c", WeightGradients::fused, 105),  candidate_of("b", WeightGradients::fused, 130),
      candidate_of("a", WeightGradients::fused, 140),  candidate_of("a", WeightGradients::fused, 141)};
  EXPECT_EQ(chosen(candidates, 9), (Names{"a", "c", "a", "b"}));
  EXPECT_EQ(chosen(candidates, 2), (Names{"a", "c"}));
}

TEST(Finalists, leave_out_what_is_much_longer_or_does_not_fit) {
  std::vector<Candidate> candidates{candidate_of("a", WeightGradients::fused, 100),
                                    candidate_of("b", WeightGradients::stream, 151),
                                    candidate_of("c", WeightGradients::fused, 0)};
  candidates.back().fits = false;
  EXPECT_EQ(chosen(candidates, 9), Names{"a"});
  candidates.front().fits = false;
  EXPECT_EQ(chosen(candidates, 9), Names{});
}

TEST(Finalists, differ_in_what_they_run) {
  const std::vector<Candidate> candidates{
      candidate_of("a", WeightGradients::fused, 100), candidate_of("twin", WeightGradients::fused, 100),
      candidate_of("b", WeightGradients::fused, 101), candidate_of("a", WeightGradients::fused, 102)};
  EXPECT_EQ(chosen(candidates, 9), (Names{"a", "b"})) << "the last one has another memory limit only";
}

TEST(Finalists, of_the_planner_begin_with_its_plan) {
  EXPECT_TRUE(make_plan(even_layers()).finalists.empty());
  const Planned planned = make_plan(even_layers(), {.finalists = 3});
  ASSERT_EQ(planned.finalists.size(), 3U);
  EXPECT_EQ(planned.finalists.front().plan, planned.plan);
  for (const Finalist& finalist : planned.finalists) EXPECT_EQ(finalist.plan.prediction, finalist.candidate.prediction);
}

}  // namespace
}  // namespace penstock::finalists_test
