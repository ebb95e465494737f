#include "penstock/rank/batch.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/penstock.h"
#include "penstock/rank/parameter_updater.h"

namespace penstock::test::compare_batches_test {
using namespace rank;
namespace {

TEST(BatchDigest, is_equal_for_equal_contents_in_any_memory_order) {
  const torch::Tensor small = torch::arange(35).view({5, 7});
  EXPECT_EQ(digest_of(small), digest_of(small.clone()));
  EXPECT_EQ(digest_of(small), digest_of(small.t().contiguous().t()));
  EXPECT_EQ(digest_of(small).find("Long [5, 7] #"), 0U) << digest_of(small);
  EXPECT_EQ(digest_of({}), "undefined");
  EXPECT_EQ(digest_of(torch::tensor(3.0F)), digest_of(torch::tensor(3.0F)));
  EXPECT_EQ(digest_of(torch::empty({0, 4})), digest_of(torch::empty({0, 4})));
}

TEST(BatchDigest, differs_with_contents_sizes_and_type) {
  const torch::Tensor small = torch::arange(35).view({5, 7});
  torch::Tensor other = small.clone();
  other[4][6] = 0;
  EXPECT_NE(digest_of(small), digest_of(other));
  EXPECT_NE(digest_of(small), digest_of(small.view({7, 5})));
  EXPECT_NE(digest_of(small), digest_of(small.to(torch::kInt32)));
}

// Of a large tensor the digest covers a part, in which batches of other samples differ.
TEST(BatchDigest, of_a_large_tensor_reads_a_part_of_it) {
  torch::manual_seed(1);
  const torch::Tensor large = torch::randn({64, 3, 64, 64}), other = torch::randn({64, 3, 64, 64});
  EXPECT_EQ(digest_of(large), digest_of(large.clone()));
  EXPECT_NE(digest_of(large), digest_of(other));
  const torch::Tensor turned = large.transpose(1, 3);
  EXPECT_EQ(digest_of(turned), digest_of(turned));
  EXPECT_NE(digest_of(turned), digest_of(other.transpose(1, 3)));
}

TEST(ComparedSteps, are_the_first_three_and_every_nth) {
  std::vector<int> compared;
  for (std::uint64_t step = 0; step < 12; ++step)
    if (is_compared(step, 5)) compared.push_back(static_cast<int>(step));
  EXPECT_EQ(compared, (std::vector<int>{0, 1, 2, 5, 10}));
  EXPECT_FALSE(is_compared(0, 0));
}

TEST(LossScaler, halves_at_once_and_doubles_after_good_steps) {
  LossScaler scaler(Precision::fp16, {.initial = 8, .growth_steps = 2});
  std::vector<double> scales;
  for (const bool finite : {true, false, true, false, true, true, true, true, true}) {
    scaler.end_step(finite);
    scales.push_back(scaler.scale());
  }
  EXPECT_EQ(scales, (std::vector<double>{8, 4, 4, 2, 2, 4, 4, 8, 8}));
  // A checkpoint may come from a training with more good steps per growth.
  scaler.load({.scale = 8, .good_steps = 5});
  scaler.end_step(true);
  EXPECT_EQ(scaler.scale(), 16);
  LossScaler none(Precision::bf16, {});
  none.end_step(false);
  EXPECT_EQ(none.scale(), 1);
  EXPECT_FALSE(none.is_dynamic());
}

TEST(LossScaler, stays_within_the_range_of_fp32) {
  LossScaler scaler(Precision::fp16, {.initial = 1, .growth_steps = 1});
  for (int i = 0; i < 100; ++i) scaler.end_step(true);
  EXPECT_EQ(scaler.scale(), std::exp2(24));
  for (int i = 0; i < 100; ++i) scaler.end_step(false);
  EXPECT_EQ(scaler.scale(), std::exp2(-24));
  for (const double initial : {0.0, -1.0, 3.0, 1e9, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(require_loss_scaling({.initial = initial}), ConfigError) << initial;
  EXPECT_THROW(require_loss_scaling({.growth_steps = 0}), ConfigError);
  require_loss_scaling({});
}

}  // namespace
}  // namespace penstock::test::compare_batches_test
