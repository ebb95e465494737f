// Joins the processes of a job by Gloo: each finds the others in a c10d store, compares builds, and connects with them.
#pragma once

#include <chrono>
#include <memory>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "penstock/transport/joined_processes.h"
#include "penstock/transport/processes/buffer_network.h"

namespace penstock {

/// A process's part of a world.
struct GlooWorld {
  std::unique_ptr<BufferNetwork> network;
  c10::intrusive_ptr<c10d::Store> store;  // of this world alone
};

/// Used by one thread at a time.
class GlooRendezvous {
 public:
  /// That of the processes that the launcher has started. It keeps the connection to the store, which rank 0 may hold,
  /// until the process ends.
  static GlooRendezvous& instance();
  /// Of processes that share `store`. Throws as store_processes().
  GlooRendezvous(const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own);

  /// The number of processes.
  int size() const;

  /// This process's part of its next world. Every process makes its n-th call for the same world. Errors are those
  /// of open_gloo().
  GlooWorld open(std::chrono::milliseconds deadline);

 private:
  struct Job;

  GlooRendezvous() = default;

  std::shared_ptr<Job> job_;  // null: that of the launcher, not joined yet
};

}  // namespace penstock
