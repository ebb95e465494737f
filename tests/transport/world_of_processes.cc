#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string>

#include <gtest/gtest.h>

#include "tests/transport/world_under_test.h"

namespace penstock::test {
namespace {

std::unique_ptr<Transport> endpoint;

}  // namespace

std::vector<WorldUnderTest> worlds_under_test() {
  return {{endpoint->name(), [](const std::function<void(Transport&)>& rank_main) { rank_main(*endpoint); }}};
}

}  // namespace penstock::test

int main(int argc, char** argv) {
  using penstock::test::endpoint;
  const penstock::TransportOptions options{.deadline = std::chrono::seconds(20)};
  endpoint = std::getenv("MASTER_ADDR") ? penstock::open_gloo(options) : penstock::open_mpi(options);
  if (endpoint->rank().value() != 0) ::testing::GTEST_FLAG(brief) = true;  // the others print failures only
  ::testing::InitGoogleTest(&argc, argv);
  if (argc > 1 && std::stoi(argv[1]) != endpoint->size()) {
    std::cerr << "this world has " << endpoint->size() << " ranks, expected " << argv[1] << "\n";
    return 1;
  }
  const int code = RUN_ALL_TESTS();
  if (code != 0) endpoint->abort("a test failed");
  endpoint.reset();
  return code;
}
