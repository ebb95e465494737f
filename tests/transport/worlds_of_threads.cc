#include "tests/support/fault_injection.h"
#include "tests/transport/run_world.h"
#include "tests/transport/world_under_test.h"

namespace penstock::test {
namespace {

using Endpoints = std::vector<std::unique_ptr<Transport>>;

WorldUnderTest world(const std::string& name, int size, const std::function<Endpoints(int)>& open) {
  return {name + std::to_string(size), [=](const std::function<void(Transport&)>& rank_main) {
            const Endpoints endpoints = open(size);
            run_world(size, [&](int rank) { rank_main(*endpoints[static_cast<std::size_t>(rank)]); });
          }};
}

Endpoints reordering(int size) {
  Endpoints endpoints = open_threads(size, {});
  for (auto& endpoint : endpoints)
    endpoint = with_faults(std::move(endpoint), {.delay_odd = FaultPlan::Delay{.later_sends = 3}});
  return endpoints;
}

}  // namespace

std::vector<WorldUnderTest> worlds_under_test() {
  std::vector<WorldUnderTest> worlds;
  for (int size : {1, 2, 3, 4, 8}) {
    worlds.push_back(world("threads", size, [](int n) { return open_threads(n, {}); }));
    worlds.push_back(world("spinning_threads", size, [](int n) { return open_threads(n, {.spin = true}); }));
    worlds.push_back(world("reordering_threads", size, reordering));
  }
  return worlds;
}

}  // namespace penstock::test
