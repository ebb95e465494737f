#include "penstock/transport/processes/peer_processes.h"

#include <string_view>

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/transport/child.h"

namespace penstock::peer_processes_test {
namespace {

using namespace processes;
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

TEST(PeerProcesses, that_do_not_respond_are_told_apart) {
  Child child;
  ProcessPlace place{host_id(), child.name()};
  const auto is = [&](const char* what) { return say(" (process ", place.process.number, ") ", what); };
  EXPECT_EQ(trouble_with(place), "");
  ::kill(static_cast<pid_t>(place.process.number), SIGSTOP);
  siginfo_t ignored;
  ::waitid(P_PID, static_cast<id_t>(place.process.number), &ignored, WSTOPPED | WNOWAIT);
  EXPECT_EQ(trouble_with(place), is("is stopped"));
  child.kill();
  EXPECT_EQ(trouble_with(place), is("has ended"));
  child.end();
  EXPECT_EQ(trouble_with(place), is("has ended"));
  ++place.host;
  EXPECT_EQ(trouble_with(place), "") << "of another host nothing is known";
  place = {host_id(), {place.process.numbered_by + 1, place.process.number}};
  EXPECT_EQ(trouble_with(place), "") << "of another container nothing is known";
}

Environment on_host(const char* name) {
  return [name](const char* variable) { return std::string_view(variable) == host_variable ? name : nullptr; };
}

TEST(HostId, is_the_same_for_all_processes_of_a_host_and_can_be_overridden) {
  EXPECT_NE(host_id(), 0u);
  EXPECT_EQ(host_id(on_host(nullptr)), host_id(on_host("")));
  EXPECT_EQ(host_id(on_host("a")), host_id(on_host("a")));
  EXPECT_NE(host_id(on_host("a")), host_id(on_host("b")));
  EXPECT_NE(host_id(on_host("a")), host_id(on_host(nullptr)));
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
