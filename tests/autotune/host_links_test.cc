#include "penstock/autotune/profile.h"

#include <gtest/gtest.h>

namespace penstock::host_links_test {
namespace {

TEST(HostLinks, the_shortest_trips_give_latency_and_bandwidth) {
  // A long message takes 50.5 ms each way, of which 0.5 are those of a short one.
  const LinkSpeed speed = speed_of({{0, 1.5}, {0, 1}, {0, 9}}, {{5000, 101}, {5000, 140}});
  EXPECT_DOUBLE_EQ(speed.latency, 0.5);
  EXPECT_DOUBLE_EQ(speed.bytes_per_unit, 100);
}

TEST(HostLinks, bytes_cost_nothing_where_a_long_message_takes_no_longer) {
  EXPECT_EQ(speed_of({{4, 1}}, {{5000, 1}}), (LinkSpeed{.bytes_per_unit = 0, .latency = 0.5}));
}

TEST(HostLinks, one_host_has_none) {
  World world({.stages = 2});
  EXPECT_FALSE(speed_between_hosts(world));
}

}  // namespace
}  // namespace penstock::host_links_test
