// The matrix with a network of many kinds of layers (u_job.h): every schedule x ranks x chunks x micro-batches, with
// and without recompute, equals one rank bitwise, including running statistics.
#include <gtest/gtest.h>

#include "penstock/pipeline/profiler.h"
#include "tests/runtime/u_job.h"

namespace penstock::test::u_matrix_test {
namespace {

using Key = std::pair<int, WeightGradients>;

std::map<Key, UOutcome> alone(World& world, Precision precision) {
  std::map<Key, UOutcome> outcomes;
  for (int m : {2, 5})
    for (const auto mode : {WeightGradients::stream, WeightGradients::fused})
      outcomes[{m, mode}] = run_u_job(world, {"gpipe", 1, 1, m, mode, false, precision});
  return outcomes;
}

void expect_equal_to_one_rank(Precision precision, int replicas) {
  std::map<Key, UOutcome> expected;
  {
    World world({.stages = 1, .replicas = replicas});
    expected = alone(world, precision);
  }
  int cases = 0;
  for (int stages = 1; stages <= 4; ++stages) {
    World world({.stages = stages, .replicas = replicas});
    for (const UCase& one : u_cases(stages, precision)) {
      // bf16 and replicas run with every schedule, but not with every shape.
      const bool is_small = stages % 2 == 0 && one.micro_batches == 5 && one.recompute;
      if ((precision == Precision::bf16 || replicas > 1) && !is_small) continue;
      ++cases;
      const UOutcome outcome = run_u_job(world, one);
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

TEST(UMatrix, does_not_change_frozen_parameters) {
  World world({.stages = 2});
  const UOutcome outcome = run_u_job(world, {"1f1b", 2, 1, 2});
  UNetwork fresh;
  Pipeline pipeline(world, fresh, cross_entropy, {.micro_batches = 2, .partition = "uniform", .seed = 5});
  const auto initial = pipeline.state();
  EXPECT_TRUE(torch::equal(outcome.state.at("frozen.weight"), initial.at("frozen.weight")));
  EXPECT_FALSE(torch::equal(outcome.state.at("tied.bias"), initial.at("tied.bias")));
}

}  // namespace
}  // namespace penstock::test::u_matrix_test
