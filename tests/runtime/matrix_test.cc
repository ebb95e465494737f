// The whole matrix: every schedule x ranks x chunks x micro-batches equals one rank bitwise, and holds as many live
// activations as validate() and simulate() predict.
#include <gtest/gtest.h>

#include "penstock/pipeline/profiler.h"
#include "tests/runtime/deep_job.h"

namespace penstock::test::matrix_test {
namespace {

/// The peak of live activations of each rank from simulate(): in steps of all micro-batches, and of six samples.
std::vector<int> simulated_peaks(const DeepCase& one) {
  std::vector<int> most(static_cast<std::size_t>(one.stages), 0);
  for (const int micro_batches : {one.micro_batches, std::min(one.micro_batches, 6)}) {
    Schedule schedule = generate(one.schedule, {one.stages, micro_batches, one.chunks});
    if (one.weight_gradients == WeightGradients::fused) schedule = fuse_w(schedule);
    const std::vector<int> peaks = simulate(lower(schedule), StageCosts::unit()).peak_contexts;
    for (std::size_t rank = 0; rank < most.size(); ++rank) most[rank] = std::max(most[rank], peaks[rank]);
  }
  return most;
}

class Matrix : public testing::TestWithParam<WeightGradients> {};

TEST_P(Matrix, equals_one_rank_and_holds_the_predicted_activations) {
  std::map<int, DeepOutcome> alone;  // by micro-batches
  {
    World world({.stages = 1});
    for (int m : {1, 2, 3, 5, 8}) alone[m] = run_deep_job(world, {"gpipe", 1, 1, m, GetParam()});
  }
  int cases = 0;
  for (int stages = 1; stages <= 4; ++stages) {
    World world({.stages = stages});
    for (const DeepCase& one : deep_cases(stages, GetParam())) {
      ++cases;
      const DeepOutcome outcome = run_deep_job(world, one);
      EXPECT_EQ(difference(alone.at(one.micro_batches), outcome), "") << one.name();
      const std::vector<int> simulated = simulated_peaks(one);
      for (const RankPeak& peak : outcome.peaks) {
        EXPECT_EQ(peak.measured, peak.predicted) << one.name() << " rank " << peak.rank.value();
        EXPECT_EQ(peak.measured, simulated[peak.rank.index()]) << one.name();
      }
    }
  }
  RecordProperty("cases", cases);
  std::cout << cases << " cases, each with 3 steps\n";
}

TEST(Evaluation, between_steps_changes_nothing) {
  World world({.stages = 2});
  const DeepCase one{"zb-h1", 2, 1, 3};
  DeepOutcome with = run_deep_job(world, one), without = run_deep_job(world, one, false);
  ASSERT_EQ(with.losses.size(), 4u);
  with.losses.erase(with.losses.begin() + 2);
  EXPECT_EQ(difference(with, without), "");
}

INSTANTIATE_TEST_SUITE_P(Modes, Matrix, testing::Values(WeightGradients::stream, WeightGradients::fused),
                         [](const auto& one) { return one.param == WeightGradients::stream ? "stream" : "fused"; });

}  // namespace
}  // namespace penstock::test::matrix_test
