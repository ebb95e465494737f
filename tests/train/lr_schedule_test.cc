#include "penstock/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::lr_schedule_test {
namespace {

std::vector<double> rates(const LearningRatePlan& plan, std::int64_t total) {
  const LearningRateSchedule rate = learning_rate_schedule(plan, total);
  std::vector<double> all;
  for (std::int64_t completed = 0; completed <= total; ++completed) all.push_back(rate(completed));
  return all;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-15) << i;
}

// Colossal-AI's tutorial: two epochs, one of them warm-up.
TEST(LearningRate, linear_with_warm_up) {
  expect_near(rates({"linear", 1e-3, 1}, 2), {0.0005, 0.001, 0});
  expect_near(rates({"linear", 6, 2}, 5), {2, 4, 6, 4, 2, 0});
}

TEST(LearningRate, constant_with_warm_up) {
  expect_near(rates({"constant", 2}, 3), {2, 2, 2, 2});
  expect_near(rates({"constant", 3, 2}, 3), {1, 2, 3, 3});
  expect_near(rates({"constant", 4, 3}, 3), {1, 2, 3, 4});
}

TEST(LearningRate, cosine) {
  const double bend = std::sqrt(0.5);
  expect_near(rates({"cosine", 2}, 4), {2, 1 + bend, 1, 1 - bend, 0});
}

TEST(LearningRate, refuses_invalid_arguments) {
  EXPECT_THROW(learning_rate_schedule({"step"}, 1), ConfigError);
  EXPECT_THROW(learning_rate_schedule({"linear"}, 0), ConfigError);
  EXPECT_THROW(learning_rate_schedule({.schedule = "linear", .warmup = 4}, 3), ConfigError);
  EXPECT_THROW(learning_rate_schedule({.schedule = "linear", .warmup = -1}, 3), ConfigError);
  EXPECT_THROW(learning_rate_schedule({"linear", -1}, 1), ConfigError);
  EXPECT_EQ(test::error_text<ConfigError>([&] { learning_rate_schedule({.schedule = "linear", .warmup = 4}, 3); }),
            "a warm-up of 4 epochs in a training of 3 epochs: pass 0 to 3");
}

}  // namespace
}  // namespace penstock::lr_schedule_test
