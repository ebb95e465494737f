#include "penstock/data/prefetcher.h"

#include <atomic>
#include <latch>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/base/error_text.h"

namespace penstock::prefetcher_test {
namespace {

/// 0, 1, ... count-1.
Prefetcher<int>::Make numbers(int count) {
  return [count](std::int64_t index) { return index < count ? std::optional(static_cast<int>(index)) : std::nullopt; };
}

class PrefetcherAhead : public testing::TestWithParam<PrefetchOptions> {};
INSTANTIATE_TEST_SUITE_P(Items, PrefetcherAhead,
                         testing::Values(PrefetchOptions{0, 1}, PrefetchOptions{1, 1}, PrefetchOptions{2, 1},
                                         PrefetchOptions{100, 1}, PrefetchOptions{1, 3}, PrefetchOptions{4, 3},
                                         PrefetchOptions{100, 8}));

TEST_P(PrefetcherAhead, returns_all_items_in_order) {
  Prefetcher<int> prefetcher(numbers(50), GetParam());
  for (int i = 0; i < 50; ++i) EXPECT_EQ(prefetcher.next(), i);
  EXPECT_EQ(prefetcher.next(), std::nullopt);
  EXPECT_EQ(prefetcher.next(), std::nullopt);
}

TEST_P(PrefetcherAhead, an_exception_is_rethrown_after_the_items_before_it) {
  Prefetcher<int> prefetcher(
      [](std::int64_t index) -> std::optional<int> {
        if (index == 3) throw std::runtime_error("the fourth is broken");
        return static_cast<int>(index);
      },
      GetParam());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(prefetcher.next(), i);
  EXPECT_EQ(test::error_text<std::runtime_error>([&] { prefetcher.next(); }), "the fourth is broken");
  EXPECT_EQ(prefetcher.next(), std::nullopt);
}

TEST_P(PrefetcherAhead, can_be_destroyed_before_its_end) {
  Prefetcher<int> prefetcher(numbers(1'000'000'000), GetParam());
  EXPECT_EQ(prefetcher.next(), 0);
}

TEST(Prefetcher, can_be_destroyed_unused) { Prefetcher<int> prefetcher(numbers(10), {.ahead = 2}); }

TEST(Prefetcher, makes_only_the_requested_number_of_items_ahead) {
  std::atomic<int> made = 0;
  std::latch two_made(2);
  std::thread::id maker;
  Prefetcher<int> prefetcher(
      [&](std::int64_t) -> std::optional<int> {
        if (made == 0) maker = std::this_thread::get_id();
        const int item = made++;
        if (item < 2) two_made.count_down();
        return item;
      },
      {.ahead = 2});
  two_made.wait();  // before the first next()
  EXPECT_EQ(made, 2);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(prefetcher.next(), i);
    EXPECT_LE(made, i + 1 + 2);
  }
  EXPECT_NE(maker, std::this_thread::get_id());
}

TEST(Prefetcher, several_workers_make_items_concurrently) {
  std::latch all_at_work(3);
  Prefetcher<int> prefetcher(
      [&](std::int64_t index) -> std::optional<int> {
        if (index < 3) all_at_work.arrive_and_wait();  // returns only when three items are being made
        return index < 20 ? std::optional(static_cast<int>(index)) : std::nullopt;
      },
      {.ahead = 3, .workers = 3});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(prefetcher.next(), i);
  EXPECT_EQ(prefetcher.next(), std::nullopt);
}

TEST(Prefetcher, uses_no_thread_without_prefetching) {
  std::vector<std::thread::id> makers;
  Prefetcher<int> prefetcher(
      [&](std::int64_t) -> std::optional<int> {
        makers.push_back(std::this_thread::get_id());
        return 7;
      },
      {});
  EXPECT_TRUE(makers.empty());
  EXPECT_EQ(prefetcher.next(), 7);
  EXPECT_EQ(makers, std::vector{std::this_thread::get_id()});
}

}  // namespace
}  // namespace penstock::prefetcher_test
