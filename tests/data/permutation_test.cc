#include "penstock/data/sample_random.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace penstock::permutation_test {
namespace {

using Order = std::vector<std::int64_t>;

// Computed by an independent program from the definition. Other values would change every shuffled run.
TEST(Permutation, golden) {
  EXPECT_EQ(permutation(10, {.seed = 0, .epoch = 0}), (Order{0, 1, 4, 6, 3, 9, 8, 7, 2, 5}));
  EXPECT_EQ(permutation(10, {.seed = 0, .epoch = 1}), (Order{7, 8, 9, 5, 4, 3, 1, 6, 2, 0}));
  EXPECT_EQ(permutation(10, {.seed = 1, .epoch = 0}), (Order{4, 2, 1, 3, 7, 9, 5, 0, 6, 8}));
  EXPECT_EQ(permutation(10, {.seed = ~std::uint64_t{0}, .epoch = 3}), (Order{1, 7, 6, 4, 2, 5, 0, 8, 9, 3}));

  const Order mnist = permutation(60000, {.seed = 1, .epoch = 0});
  EXPECT_EQ(Order(mnist.begin(), mnist.begin() + 5), (Order{28613, 25360, 40917, 30565, 34934}));
  std::int64_t weighted = 0;
  for (std::size_t i = 0; i < mnist.size(); ++i) weighted += static_cast<std::int64_t>(i) * mnist[i];
  EXPECT_EQ(weighted, 54033837075337);
}

TEST(Permutation, of_no_sample_and_of_one) {
  EXPECT_EQ(permutation(0, {}), Order{});
  EXPECT_EQ(permutation(1, {.seed = 7}), Order{0});
}

RC_GTEST_PROP(Permutation, HoldsEverySampleOnce, (std::uint64_t seed, std::uint64_t epoch)) {
  const auto count = *rc::gen::inRange<std::int64_t>(0, 500);
  Order order = permutation(count, {.seed = seed, .epoch = epoch});
  std::sort(order.begin(), order.end());
  Order all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  RC_ASSERT(order == all);
}

// Each of the 24 orders of four samples should come in 1 of 24 epochs: 24,000 draws, so 1,000 +- 31 each.
TEST(Permutation, all_orders_are_equally_likely) {
  std::array<int, 256> seen{};
  for (std::uint64_t epoch = 0; epoch < 24000; ++epoch) {
    const Order order = permutation(4, {.seed = 5, .epoch = epoch});
    ++seen[static_cast<std::size_t>(order[0] * 64 + order[1] * 16 + order[2] * 4 + order[3])];
  }
  EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](int times) { return times > 0; }), 24);
  for (int times : seen) EXPECT_TRUE(times == 0 || std::abs(times - 1000) < 5 * 31) << times;
}

}  // namespace
}  // namespace penstock::permutation_test
