#include "penstock/schedule/order.h"

#include <gtest/gtest.h>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"

namespace penstock::order_test {
namespace {

TEST(Schedule, counts_its_instructions) {
  EXPECT_EQ(Schedule{}.instruction_count(), 0u);
  EXPECT_EQ(generate("gpipe", {.ranks = 3, .micro_batches = 5}).instruction_count(), 3u * 5u * 2u);
}

TEST(Schedule, reports_whether_it_is_lowered) {
  const Schedule plain = generate("gpipe", {.ranks = 2, .micro_batches = 2});
  EXPECT_FALSE(plain.is_lowered());
  EXPECT_TRUE(lower(plain).is_lowered());
  EXPECT_TRUE(lower(generate("gpipe", {.ranks = 1, .micro_batches = 2})).is_lowered());  // by its STEP
}

TEST(Schedule, reports_whether_it_is_forward_only) {
  EXPECT_TRUE(lower(generate("forward-only", {.ranks = 2, .micro_batches = 2})).is_forward_only());
  EXPECT_FALSE(generate("gpipe", {.ranks = 2, .micro_batches = 2}).is_forward_only());
}

}  // namespace
}  // namespace penstock::order_test
