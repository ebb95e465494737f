#include "penstock/train/lr_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::lr_schedule_test {
namespace {

std::vector<double> rates(std::string_view name, const LearningRateOptions& options) {
  const LearningRateSchedule rate = learning_rate_schedule(name, options);
  std::vector<double> all;
  for (std::int64_t completed = 0; completed <= options.total; ++completed) all.push_back(rate(completed));
  return all;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-15) << i;
}

// Colossal-AI's tutorial: two epochs, one of them warm-up.
TEST(LearningRate, linear_with_warm_up) {
  expect_near(rates("linear", {.rate = 1e-3, .total = 2, .warmup = 1}), {0.0005, 0.001, 0});
  expect_near(rates("linear", {.rate = 6, .total = 5, .warmup = 2}), {2, 4, 6, 4, 2, 0});
}

TEST(LearningRate, constant_with_warm_up) {
  expect_near(rates("constant", {.rate = 2, .total = 3}), {2, 2, 2, 2});
  expect_near(rates("constant", {.rate = 3, .total = 3, .warmup = 2}), {1, 2, 3, 3});
  expect_near(rates("constant", {.rate = 4, .total = 3, .warmup = 3}), {1, 2, 3, 4});
}

TEST(LearningRate, cosine) {
  const double bend = std::sqrt(0.5);
  expect_near(rates("cosine", {.rate = 2, .total = 4}), {2, 1 + bend, 1, 1 - bend, 0});
}

TEST(LearningRate, refuses_invalid_arguments) {
  EXPECT_THROW(learning_rate_schedule("step", {}), ConfigError);
  EXPECT_THROW(learning_rate_schedule("linear", {.total = 0}), ConfigError);
  EXPECT_THROW(learning_rate_schedule("linear", {.total = 3, .warmup = 4}), ConfigError);
  EXPECT_THROW(learning_rate_schedule("linear", {.total = 3, .warmup = -1}), ConfigError);
  EXPECT_THROW(learning_rate_schedule("linear", {.rate = -1}), ConfigError);
  EXPECT_EQ(test::error_text<ConfigError>(
                [&] { learning_rate_schedule("linear", {.total = 3, .unit = "epochs", .warmup = 4}); }),
            "a warm-up of 4 epochs in a training of 3 epochs: pass 0 to 3");
}

}  // namespace
}  // namespace penstock::lr_schedule_test
