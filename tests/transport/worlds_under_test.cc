#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/fault_injection.h"
#include "tests/transport/run_world.h"
#include "tests/transport/world_under_test.h"

namespace penstock::test {
namespace {

using Endpoints = std::vector<std::unique_ptr<Transport>>;

WorldUnderTest world(const std::string& name, int size, const std::function<Endpoints(int)>& open) {
  const auto each_rank = [=](const WorldUnderTest::RankMain& rank_main) {
    const Endpoints endpoints = open(size);
    run_world(size, [&](int rank) { rank_main(*endpoints[static_cast<std::size_t>(rank)]); });
  };
  return {name + std::to_string(size), each_rank, each_rank};
}

Endpoints reordering(int size) {
  Endpoints endpoints = open_threads(size, {});
  for (auto& endpoint : endpoints)
    endpoint = with_faults(std::move(endpoint), {.delay_odd = FaultPlan::Delay{.later_sends = 3}});
  return endpoints;
}

/// This process as a rank, from before the first test until after the last one.
class RankOfProcesses : public ::testing::Environment {
 public:
  explicit RankOfProcesses(int ranks) : ranks_(ranks), endpoint_(open()) {
    if (endpoint_->rank().value() != 0) ::testing::GTEST_FLAG(brief) = true;  // the others print failures only
  }
  void SetUp() override { ASSERT_EQ(endpoint_->size(), ranks_) << "the ranks of this world"; }
  void TearDown() override {
    if (::testing::UnitTest::GetInstance()->Failed()) endpoint_->abort("a test failed");
    endpoint_.reset();
  }
  Transport& endpoint() { return *endpoint_; }
  static std::unique_ptr<Transport> open() {
    const TransportOptions options{.deadline = std::chrono::seconds(20)};
    return std::getenv("MASTER_ADDR") ? open_gloo(options) : open_mpi(options);
  }

 private:
  const int ranks_;
  std::unique_ptr<Transport> endpoint_;
};

}  // namespace

std::vector<WorldUnderTest> worlds_under_test() {
  if (const char* ranks = std::getenv("PENSTOCK_TEST_RANKS")) {
    static auto* const processes = new RankOfProcesses(std::stoi(ranks));                   // one for both suites
    static const auto* const environment = ::testing::AddGlobalTestEnvironment(processes);  // which owns it
    (void)environment;
    WorldUnderTest world{processes->endpoint().name(),
                         [](const WorldUnderTest::RankMain& rank_main) { rank_main(processes->endpoint()); },
                         [](const WorldUnderTest::RankMain& rank_main) { rank_main(*RankOfProcesses::open()); }};
    world.encodes = processes->endpoint().size() > 1;
    return {world};
  }
  std::vector<WorldUnderTest> worlds;
  for (int size : {1, 2, 3, 4, 8}) {
    worlds.push_back(world("threads", size, [](int n) { return open_threads(n, {}); }));
    worlds.push_back(world("spinning_threads", size, [](int n) { return open_threads(n, {.spin = true}); }));
    worlds.push_back(world("reordering_threads", size, reordering));
  }
  return worlds;
}

}  // namespace penstock::test
