#include "penstock/transport/peer_processes.h"

#include <gtest/gtest.h>

#include "tests/transport/child.h"

namespace penstock::peer_processes_test {
namespace {

using test::Child;

TEST(PeerProcesses, report_the_one_that_has_ended) {
  Child first, second;
  PeerProcesses peers;
  peers.watch(WorldRank(1), first.name());
  peers.watch(WorldRank(2), second.name());
  EXPECT_FALSE(peers.ended());
  second.kill();
  ASSERT_TRUE(peers.ended());
  EXPECT_EQ(peers.ended()->rank, WorldRank(2));
  EXPECT_EQ(peers.ended()->process, second.name().number);
  second.end();
  EXPECT_TRUE(peers.ended()) << "it was forgotten when its parent asked for its exit code";
}

TEST(PeerProcesses, report_one_that_ended_before_it_was_watched) {
  Child child;
  const ProcessName name = child.name();
  child.end();
  PeerProcesses peers;
  peers.watch(WorldRank(3), name);
  ASSERT_TRUE(peers.ended());
  EXPECT_EQ(peers.ended()->rank, WorldRank(3));
}

TEST(PeerProcesses, of_one_number_are_told_apart_by_their_start) {
  Child child;
  const std::int64_t number = child.name().number;
  const std::uint64_t start = start_of_process(number);
  EXPECT_GE(start, start_of_process(::getpid()));
  EXPECT_GT(start_of_process(::getpid()), 0U);
  child.end();
  EXPECT_NE(start_of_process(number), start);
}

// A container numbers its processes anew: the same number may be another process here.
TEST(PeerProcesses, are_not_watched_across_containers) {
  Child child;
  ProcessName elsewhere = child.name();
  ++elsewhere.numbered_by;
  PeerProcesses peers;
  peers.watch(WorldRank(1), elsewhere);
  peers.watch(WorldRank(2), {0, child.name().number});
  child.kill();
  EXPECT_FALSE(peers.ended());
}

}  // namespace
}  // namespace penstock::peer_processes_test
