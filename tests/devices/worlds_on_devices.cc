// The worlds of device_tests on which the conformance suites of tests/transport check the guarantees of data_plane.h
// and control_plane.h: ranks on test devices, all of them in this process.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "penstock/world/device.h"
#include "tests/devices/joined_here.h"
#include "tests/support/stream_groups.h"
#include "tests/support/test_device.h"
#include "tests/transport/run_world.h"
#include "tests/transport/world_under_test.h"

namespace penstock::test {
namespace {

using Endpoints = std::vector<std::unique_ptr<Transport>>;

/// Between all ranks, in an order that is that of all.
std::vector<RankPair> pairs_of(int size) {
  std::vector<RankPair> pairs;
  for (WorldRank from(0); from.value() < size; from = from.next())
    for (WorldRank to(0); to.value() < size; to = to.next())
      if (from != to) pairs.push_back({from, to});
  return pairs;
}

enum class Arrival { on_device, on_cpu };

WorldUnderTest world(const std::string& name, int size, Arrival arrival, const std::function<Endpoints(int)>& open) {
  const auto each_rank = [=](const WorldUnderTest::RankMain& rank_main) {
    stream_order().take_violations();
    Endpoints endpoints = open(size);
    run_world(size, [&](int rank) {
      const RankDevice device(test_device(rank));
      const RankDeviceGuard guard(device);
      Transport& own = *endpoints[static_cast<std::size_t>(rank)];
      try {
        own.connect({pipeline_under_test, pairs_of(size), device.device()});
        rank_main(own);
        device.synchronize();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        own.abort("a test failed");  // endpoints of a world that works wait for each other at their end
      }
    });
    close(std::move(endpoints));
    EXPECT_EQ(stream_order().take_violations(), std::vector<std::string>{});
  };
  const auto arrives_on = [arrival](int to) -> c10::Device {
    return arrival == Arrival::on_device ? test_device(to) : c10::kCPU;
  };
  return {name + std::to_string(size), each_rank, each_rank, test_device, arrives_on};
}

/// A process whose last world has failed ends with an error (transport/processes/exit_watch.h), and worlds of these tests fail.
class CleanEnd : public ::testing::Environment {
 public:
  void TearDown() override { close(open_here(2)); }
};

}  // namespace

std::vector<WorldUnderTest> worlds_under_test() {
  static const auto* const clean_end = ::testing::AddGlobalTestEnvironment(new CleanEnd);  // which it owns
  (void)clean_end;
  std::vector<WorldUnderTest> worlds;
  for (int size : {2, 3}) {
    worlds.push_back(world("threads", size, Arrival::on_device, [](int n) { return open_threads(n, {}); }));
    worlds.push_back(world("through_the_host", size, Arrival::on_cpu, [](int n) { return open_here(n); }));
    worlds.back().encodes = true;
    worlds.push_back(
        world("device_channels", size, Arrival::on_device, [](int n) { return open_here(n, stream_groups()); }));
    worlds.back().encodes = true;
  }
  return worlds;
}

}  // namespace penstock::test
