// Clusters for the tests of this module.
#pragma once

#include <rapidcheck.h>

#include <string>

#include "penstock/plan/cluster.h"

namespace penstock {

/// `fast` devices of speed 1 on node n0 and `slow` ones of half the speed on node n1.
inline Cluster fast_and_slow(int fast, int slow) {
  Cluster cluster{.time_unit = "ms", .kinds = {{"fast", {}}, {"slow", {.speed = 0.5}}}};
  if (fast > 0) cluster.nodes.push_back({"n0", "fast", fast});
  if (slow > 0) cluster.nodes.push_back({"n1", "slow", slow});
  cluster.inside = {.gigabytes_per_second = 100};
  cluster.between = {.gigabytes_per_second = 10, .latency = 0.01};
  return cluster;
}

inline Cluster any_cluster(int most_devices) {
  Cluster cluster{.time_unit = *rc::gen::element<std::string>("ms", "us", "s")};
  cluster.kinds["a"] = {.speed = *rc::gen::element(0.25, 0.5, 1.0, 2.0)};
  cluster.kinds["b"] = {.speed = 1, .memory_bytes = *rc::gen::inRange(1000, 100000)};
  const auto link = [] {
    return ClusterLink{*rc::gen::element(0.0, 0.125, 3.0), *rc::gen::element(0.0, 0.5), *rc::gen::arbitrary<bool>()};
  };
  const int devices = *rc::gen::inRange(1, most_devices + 1);
  for (int count = 0; count < devices;) {
    const int ranks = *rc::gen::inRange(1, devices - count + 1);
    cluster.nodes.push_back(
        {"n" + std::to_string(cluster.nodes.size()), *rc::gen::element<std::string>("a", "b"), ranks});
    count += ranks;
  }
  cluster.inside = link();
  cluster.between = link();
  if (cluster.nodes.size() > 1 && *rc::gen::arbitrary<bool>()) cluster.links["n1>n0"] = link();
  return cluster;
}

}  // namespace penstock
