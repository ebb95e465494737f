// The worlds on which the conformance suite checks the guarantees of transport.h. The suite is linked with one of
//   worlds_of_threads.cc     several worlds of threads, one after the other
//   world_of_processes.cc    the one MPI world that this process is a rank of; has its own main
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "penstock/transport/transport.h"

namespace penstock::test {

struct WorldUnderTest {
  std::string name;
  /// Runs the function for every rank of a world that this process has: all of them as threads, one under MPI.
  std::function<void(const std::function<void(Transport&)>&)> each_rank;

  friend std::ostream& operator<<(std::ostream& out, const WorldUnderTest& world) { return out << world.name; }
};

std::vector<WorldUnderTest> worlds_under_test();

}  // namespace penstock::test
