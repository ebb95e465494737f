// Brings the processes of a job together: each finds the others in a c10d store, compares builds, and is connected with
// them by Gloo.
#pragma once

#include <chrono>
#include <memory>

#include "penstock/transport/buffer_network.h"

namespace penstock {

/// Used by one thread at a time.
class GlooRendezvous {
 public:
  /// That of this process. It keeps the connection to the store, which rank 0 may hold, until the process ends.
  static GlooRendezvous& instance();

  /// This process's network for its next world. Every process makes its n-th call for the same world. Errors are those
  /// of open_gloo().
  std::unique_ptr<BufferNetwork> open(std::chrono::milliseconds deadline);

 private:
  struct Job;

  std::shared_ptr<Job> job_;
  int worlds_ = 0;
};

}  // namespace penstock
