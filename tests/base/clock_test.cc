#include "penstock/base/clock.h"

#include <gtest/gtest.h>

namespace penstock::clock_test {
namespace {

TEST(Clock, waits_of_the_standard_library_use_the_same_clock) {
  const auto before = std::chrono::steady_clock::now();
  const auto now = time_point_of(now_ns());
  const auto after = std::chrono::steady_clock::now();
  EXPECT_LE(before, now);
  EXPECT_LE(now, after);
}

TEST(Clock, units) {
  EXPECT_EQ(to_ms(2'500'000), 2.5);
  EXPECT_EQ(to_s(-2'500'000'000), -2.5);
  const std::int64_t begin = now_ns() - 3'000'000'000;
  EXPECT_GE(s_since(begin), 3);
  EXPECT_GE(ms_since(begin), 3000);
}

TEST(Median, is_the_middle_value) {
  EXPECT_EQ(median({}), 0);
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
}

// A delay in every step counts; a single slow step does not.
TEST(MedianOfSteps, is_the_median_of_the_means) {
  EXPECT_EQ(median_of_steps({1, 1, 1, 5, 1, 1, 1, 5, 9, 9, 9, 9}, 3), 2);
  EXPECT_EQ(median_of_steps({1, 2, 3}, 1), 2);
  EXPECT_EQ(median_of_steps({7}, 1), 7);
  EXPECT_EQ(median_of_steps({}, 4), 0);
  EXPECT_EQ(median_of_steps({4, 6}, 4), 5) << "steps without any do not count";
}
}  // namespace
}  // namespace penstock::clock_test
