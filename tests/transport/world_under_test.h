// The worlds on which the conformance suites check the guarantees of data_plane.h and control_plane.h.
#pragma once

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "penstock/transport/transport.h"

namespace penstock::test {

/// The pipeline whose messages the suites send. Device channels are connected for it.
inline constexpr std::uint32_t pipeline_under_test = 1;

struct WorldUnderTest {
  using RankMain = std::function<void(Transport&)>;

  std::string name;
  /// Runs the function for every rank of a world that this process has: all of them as threads, one of processes. The
  /// tests leave the world as it was, because all of them may share it.
  std::function<void(const RankMain&)> each_rank;
  /// The same in a world of its own, which may fail.
  std::function<void(const RankMain&)> each_rank_of_new_world;
  /// The device from which a rank sends.
  std::function<c10::Device(int rank)> device = [](int) -> c10::Device { return c10::kCPU; };
  /// The device on which `to` gets what `from` sends from its own.
  std::function<c10::Device(int to)> arrives_on = [](int) -> c10::Device { return c10::kCPU; };

  /// Whether ranks are processes, or as if they were: their messages are encoded.
  bool encodes = false;

  friend std::ostream& operator<<(std::ostream& out, const WorldUnderTest& world) { return out << world.name; }
};

/// In torch_tests worlds of threads, and with PENSTOCK_TEST_RANKS=n in the environment the one world of n processes
/// (MPI, or Gloo where MASTER_ADDR is set) of which this process is a rank. In device_tests worlds with ranks on test
/// devices.
std::vector<WorldUnderTest> worlds_under_test();

}  // namespace penstock::test
