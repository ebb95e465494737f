#include "penstock/transport/adaptive_spin.h"

#include <gtest/gtest.h>

namespace penstock::adaptive_spin_test {
namespace {

using namespace transport;
using namespace std::chrono_literals;

// With a simulated clock, so that the tests do not depend on the speed of the machine.
TEST(AdaptiveSpin, spins_while_rounds_are_in_time) {
  AdaptiveSpin spin(2ms);
  for (std::int64_t now = 0; now < 1'000'000'000; now += 5'000'000) {
    EXPECT_EQ(spin.allowed_ns(now), 2'000'000);
    EXPECT_TRUE(spin.goes_on(now + 1000, 1000));
    spin.ended(400'000, true);
  }
}

TEST(AdaptiveSpin, sleeps_at_once_after_a_late_round_and_longer_each_time) {
  AdaptiveSpin spin(2ms);
  std::int64_t now = 1'000'000'000, last = 0;
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(spin.allowed_ns(now), 2'000'000) << "it tries again";
    EXPECT_FALSE(spin.goes_on(now, 3'000'000)) << "another thread's time slice";
    spin.ended(3'000'000, i % 2 == 0);
    const std::int64_t begin = now;
    while (spin.allowed_ns(now) == 0) now += 1'000'000;
    EXPECT_GE(now - begin, last);
    EXPECT_LE(now - begin, AdaptiveSpin::longest_rest_ns + 1'000'000);
    last = now - begin;
  }
  EXPECT_GE(last, AdaptiveSpin::longest_rest_ns);
  for (int i = 0; i < 100; ++i) spin.ended(100'000, true);  // the other threads have ended
  EXPECT_FALSE(spin.goes_on(now, 3'000'000));
  EXPECT_EQ(spin.allowed_ns(now + AdaptiveSpin::shortest_rest_ns), 2'000'000)
      << "a single late round is soon forgotten";
}

TEST(AdaptiveSpin, spins_seldom_where_every_wait_is_longer) {
  AdaptiveSpin spin(2ms);
  int spins = 0;
  for (int wait = 0; wait < 1600; ++wait)
    if (spin.allowed_ns(wait) > 0) {
      ++spins;
      spin.ended(2'000'000, false);
    }
  EXPECT_GE(spins, 90);
  EXPECT_LE(spins, 130);
  while (spin.allowed_ns(0) == 0) continue;
  spin.ended(500'000, true);
  EXPECT_EQ(spin.allowed_ns(0), 2'000'000) << "waits are short again";
}

TEST(AdaptiveSpin, may_be_fixed) {
  AdaptiveSpin never(0ns), always(2ms, false);
  EXPECT_EQ(never.allowed_ns(1), 0);
  EXPECT_TRUE(always.goes_on(1, 1'000'000'000));
  EXPECT_EQ(always.allowed_ns(1), 2'000'000);
}

}  // namespace
}  // namespace penstock::adaptive_spin_test
