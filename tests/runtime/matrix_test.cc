// The whole matrix: every schedule x ranks x chunks x micro-batches, with and without recompute, equals one rank bitwise,
// including running statistics, and holds as many live activations as validate() and simulate() predict.
#include <gtest/gtest.h>

#include "tests/runtime/matrix_jobs.h"

namespace penstock::test::matrix_test {
namespace {

/// The peak of live activations of each rank from simulate(): in steps of all micro-batches, and of six samples.
std::vector<int> simulated_peaks(const MatrixCase& one) {
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
  std::map<int, MatrixOutcome> alone;  // by micro-batches
  {
    World world({.stages = 1});
    for (int m : {1, 2, 3, 5, 8}) alone[m] = run_deep_job(world, {"gpipe", 1, 1, m, GetParam()});
  }
  int cases = 0;
  for (int stages = 1; stages <= 4; ++stages) {
    World world({.stages = stages});
    for (const MatrixCase& one : deep_cases(stages, GetParam())) {
      ++cases;
      const MatrixOutcome outcome = run_deep_job(world, one);
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
  MatrixCase one{"zb-h1", 2, 1, 3};
  MatrixOutcome with = run_deep_job(world, one);
  one.evaluates = false;
  const MatrixOutcome without = run_deep_job(world, one);
  ASSERT_EQ(with.losses.size(), 4u);
  with.losses.erase(with.losses.begin() + 2);
  EXPECT_EQ(difference(with, without), "");
}

INSTANTIATE_TEST_SUITE_P(Modes, Matrix, testing::Values(WeightGradients::stream, WeightGradients::fused),
                         [](const auto& one) { return one.param == WeightGradients::stream ? "stream" : "fused"; });

using Key = std::pair<int, WeightGradients>;

std::map<Key, MatrixOutcome> alone(World& world, Precision precision) {
  std::map<Key, MatrixOutcome> outcomes;
  for (int m : {2, 5})
    for (const auto mode : {WeightGradients::stream, WeightGradients::fused})
      outcomes[{m, mode}] = run_u_job(world, {"gpipe", 1, 1, m, mode, false, precision});
  return outcomes;
}

void expect_equal_to_one_rank(Precision precision, int replicas) {
  std::map<Key, MatrixOutcome> expected;
  {
    World world({.stages = 1, .replicas = replicas});
    expected = alone(world, precision);
  }
  int cases = 0;
  for (int stages = 1; stages <= 4; ++stages) {
    World world({.stages = stages, .replicas = replicas});
    for (const MatrixCase& one : u_cases(stages, precision)) {
      // bf16 and replicas run with every schedule, but not with every shape.
      const bool is_small = stages % 2 == 0 && one.micro_batches == 5 && one.recompute;
      if ((precision == Precision::bf16 || replicas > 1) && !is_small) continue;
      ++cases;
      const MatrixOutcome outcome = run_u_job(world, one);
      EXPECT_EQ(difference(expected.at({one.micro_batches, one.weight_gradients}), outcome), "") << one.name();
      for (const RankPeak& peak : outcome.peaks)
        EXPECT_EQ(peak.measured, peak.predicted) << one.name() << " rank " << peak.rank.value();
    }
  }
  testing::Test::RecordProperty("cases", cases);
  std::cout << cases << " cases, each with 3 steps\n";
}

TEST(UMatrix, equals_one_rank) { expect_equal_to_one_rank(Precision::fp32, 1); }

TEST(UMatrix, equals_one_rank_with_replicas) { expect_equal_to_one_rank(Precision::fp32, 2); }

TEST(UMatrix, equals_one_rank_in_bf16) { expect_equal_to_one_rank(Precision::bf16, 1); }

}  // namespace
}  // namespace penstock::test::matrix_test
