// Results do not depend on the schedule, the partition and the number of stages: bitwise equal to the same pipeline
// with one stage, and equal up to rounding to a plain LibTorch loop.
#include <gtest/gtest.h>

#include "penstock/pipeline/profiler.h"
#include "tests/runtime/plain_loop.h"
#include "tests/runtime/small_job.h"
#include "tests/support/expect_same.h"

namespace penstock::test::transparency_test {
namespace {

struct Case {
  std::string schedule;
  int stages;
  int micro_batches;
  Reduction reduction;
};

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string schedule = info.param.schedule;
  std::erase(schedule, '-');
  return schedule + "_p" + std::to_string(info.param.stages) + "_m" + std::to_string(info.param.micro_batches) +
         (info.param.reduction == Reduction::mean ? "_mean" : "_sum");
}

JobOptions job(const Case& one) {
  JobOptions options;
  options.world.stages = one.stages;
  options.pipeline.schedule = one.schedule;
  options.pipeline.micro_batches = one.micro_batches;
  options.pipeline.loss_reduction.reduction = one.reduction;
  options.pipeline.seed = 5;
  return options;
}

class Transparency : public testing::TestWithParam<Case> {};

TEST_P(Transparency, is_bitwise_equal_to_one_stage) {
  const JobOutcome pipeline = run_small_job(job(GetParam()));
  Case one_stage = GetParam();
  one_stage.stages = 1;
  one_stage.schedule = "gpipe";
  const JobOutcome alone = run_small_job(job(one_stage));
  EXPECT_EQ(pipeline.losses, alone.losses);
  ASSERT_EQ(pipeline.parameters.size(), 10u);
  expect_same(alone.parameters, pipeline.parameters);
}

TEST_P(Transparency, is_equal_to_a_plain_loop) {
  const JobOutcome pipeline = run_small_job(job(GetParam()));
  const bool is_sum = GetParam().reduction == Reduction::sum;
  // With the pipeline's micro-batches; for the mean, also with the whole batch at once.
  for (const std::int64_t micro_batches : {std::int64_t{GetParam().micro_batches}, std::int64_t{1}}) {
    if (is_sum && micro_batches != GetParam().micro_batches) continue;
    const plain::Settings settings{.micro_batches = micro_batches, .learning_rate = 0.1, .sum_of_means = is_sum};
    const plain::Outcome loop = plain::train(pipeline.initial, small_batches(5), settings);
    for (std::size_t i = 0; i < loop.losses.size(); ++i)
      EXPECT_NEAR(loop.losses[i], pipeline.losses[i], 1e-5 * std::abs(loop.losses[i]));
    for (const auto& [name, value] : loop.parameters.pairs()) {
      const double difference = (value - pipeline.parameters[name]).norm().item<double>();
      EXPECT_LE(difference, 1e-5 * value.norm().item<double>()) << name << ", m = " << micro_batches;
      EXPECT_FALSE(torch::equal(value, pipeline.initial[name])) << name << " was not trained";
    }
  }
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const char* schedule : {"gpipe", "1f1b", "sequential"})
    for (int stages : {1, 2, 3, 4})
      for (int micro_batches : {1, 2, 3, 4, 7})
        for (Reduction reduction : {Reduction::mean, Reduction::sum})
          cases.push_back({schedule, stages, micro_batches, reduction});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Matrix, Transparency, testing::ValuesIn(all_cases()), name_of);

TEST(Transparency, the_partition_does_not_matter) {
  JobOptions options = job({"1f1b", 3, 4, Reduction::mean});
  const JobOutcome by_parameters = run_small_job(options);
  for (const char* partition : {"uniform", "norm,d", "1,2"}) {
    options.pipeline.partition = partition;
    const JobOutcome other = run_small_job(options);
    EXPECT_EQ(by_parameters.losses, other.losses) << partition;
    expect_same(by_parameters.parameters, other.parameters, partition);
  }
}

TEST(Transparency, stages_without_layers_pass_values_through) {
  JobOptions options = job({"1f1b", 13, 4, Reduction::mean});
  const JobOutcome many = run_small_job(options);
  options.world.stages = 1;
  EXPECT_EQ(many.losses, run_small_job(options).losses);
}

// Replicas change the order of summation, so that results are compared by norm.
TEST(Transparency, replicas_equal_one_replica_with_more_micro_batches) {
  for (int replicas : {2, 3, 4}) {
    JobOptions options = job({"1f1b", 2, 2, Reduction::mean});
    options.world.replicas = replicas;
    const JobOutcome several = run_small_job(options);
    options.world.replicas = 1;
    options.pipeline.micro_batches = 2 * replicas;
    const JobOutcome one = run_small_job(options);
    for (std::size_t i = 0; i + 1 < one.losses.size(); ++i)
      EXPECT_NEAR(several.losses[i], one.losses[i], 1e-5 * one.losses[i]);
    for (const auto& [name, value] : one.parameters.pairs())
      EXPECT_LE((value - several.parameters[name]).norm().item<double>(), 1e-5 * value.norm().item<double>())
          << name << ", d = " << replicas;
  }
}

// The bound of the paper, predicted by validate(), measured by the activation store.
TEST(LiveActivations, predicted_equals_measured) {
  for (const char* schedule : {"gpipe", "1f1b"})
    for (int stages : {1, 2, 3, 4})
      for (int m : {1, 2, 3, 4, 7}) {
        const JobOutcome outcome = run_small_job(job({schedule, stages, m, Reduction::mean}));
        for (const RankPeak& peak : outcome.peaks) {
          const int expected = schedule == std::string("gpipe") ? m : std::min(m, stages - peak.rank.value());
          EXPECT_EQ(peak.predicted, expected) << schedule << " p = " << stages << " m = " << m;
          EXPECT_EQ(peak.measured, expected) << schedule << " p = " << stages << " m = " << m;
        }
      }
}

}  // namespace
}  // namespace penstock::test::transparency_test
