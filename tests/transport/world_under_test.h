// The worlds on which the conformance suite checks the guarantees of transport.h.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "penstock/transport/transport.h"

namespace penstock::test {

struct WorldUnderTest {
  std::string name;
  /// Runs the function for every rank of a world that this process has: all of them as threads, one of processes.
  std::function<void(const std::function<void(Transport&)>&)> each_rank;

  friend std::ostream& operator<<(std::ostream& out, const WorldUnderTest& world) { return out << world.name; }
};

/// Worlds of threads. With PENSTOCK_TEST_RANKS=n in the environment, the one world of n processes (MPI, or Gloo where
/// MASTER_ADDR is set) of which this process is a rank.
std::vector<WorldUnderTest> worlds_under_test();

}  // namespace penstock::test
