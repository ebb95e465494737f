// Worlds of ranks that Gloo joins as if each were a process of its own, all of them in this process.
#pragma once

#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "penstock/penstock.h"
#include "penstock/transport/joined_processes.h"
#include "penstock/transport/transport.h"

namespace penstock::test {

/// The endpoints, by rank.
inline std::vector<std::unique_ptr<Transport>> open_here(int size, const std::optional<DeviceGroups>& groups = {}) {
  c10d::TCPStoreOptions options;
  options.port = 0;  // any
  options.isServer = true;
  options.waitWorkers = false;
  // Groups meet in the stores of their ranks when pipelines are made, so that the server lives as long as these.
  static std::vector<std::unique_ptr<c10d::TCPStore>> servers;
  servers.push_back(std::make_unique<c10d::TCPStore>("127.0.0.1", options));
  options.port = servers.back()->getPort();
  options.isServer = false;
  std::vector<std::unique_ptr<Transport>> endpoints(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      // One for each, because a store waits for what another one sets.
      const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
      endpoints[static_cast<std::size_t>(rank)] =
          store_processes(store, {.rank = rank, .size = size}, groups)->open({});
    });
  for (std::thread& thread : threads) thread.join();
  return endpoints;
}

/// Destroys the endpoints, each of which waits for all others.
inline void close(std::vector<std::unique_ptr<Transport>> endpoints) {
  std::vector<std::thread> threads;
  for (auto& endpoint : endpoints) threads.emplace_back([&endpoint] { endpoint.reset(); });
  for (std::thread& thread : threads) thread.join();
}

/// A world of such ranks.
struct JoinedWorld {
  explicit JoinedWorld(const WorldOptions& options, const std::optional<DeviceGroups>& groups = {})
      : world(open_here(options.stages * std::max(options.replicas, 1), groups), options) {}
  // A world that works destroys its endpoints one after the other, and each would wait for all others.
  ~JoinedWorld() { world.fail("the end of the test"); }

  World world;
};

}  // namespace penstock::test
