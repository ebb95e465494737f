#include "penstock/base/clock.h"

#include <gtest/gtest.h>

namespace penstock::median_test {
namespace {

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
}  // namespace penstock::median_test
