#include "penstock/base/split.h"

#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace penstock::split_test {
namespace {

std::vector<std::int64_t> sizes(std::int64_t n, std::int64_t parts) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < parts; ++i) all.push_back(split(n, {.index = i, .of = parts}).size());
  return all;
}

using Sizes = std::vector<std::int64_t>;

TEST(Split, larger_parts_first) {
  static_assert(split(7, {}) == RowRange{0, 7});
  EXPECT_EQ(sizes(30, 4), (Sizes{8, 8, 7, 7}));
  EXPECT_EQ(sizes(32, 4), (Sizes{8, 8, 8, 8}));
  EXPECT_EQ(sizes(5, 1), (Sizes{5}));
}

TEST(Split, parts_beyond_the_rows_are_empty) {
  EXPECT_EQ(sizes(2, 4), (Sizes{1, 1, 0, 0}));
  EXPECT_EQ(sizes(0, 3), (Sizes{0, 0, 0}));
  EXPECT_EQ(split(2, {.index = 3, .of = 4}), (RowRange{2, 2}));
}

RC_GTEST_PROP(Split, covers_every_row_once_in_order_and_evenly, ()) {
  const auto n = *rc::gen::inRange<std::int64_t>(0, 1000);
  const auto parts = *rc::gen::inRange<std::int64_t>(1, 50);
  std::int64_t next = 0;
  std::int64_t previous_size = n;
  for (std::int64_t i = 0; i < parts; ++i) {
    const RowRange range = split(n, {.index = i, .of = parts});
    RC_ASSERT(range.begin == next);
    RC_ASSERT(range.size() == n / parts || range.size() == n / parts + 1);
    RC_ASSERT(range.size() <= previous_size);
    next = range.end;
    previous_size = range.size();
  }
  RC_ASSERT(next == n);
}

}  // namespace
}  // namespace penstock::split_test
