// The public header of the module `transport`: tensors between the ranks of a world, as threads of one process or as
// processes that MPI or Gloo connects. Every rank holds one endpoint, which has two sides: the data plane carries
// messages (data_plane.h), the control plane knows where the ranks are and ends their waits (control_plane.h). Each
// header states the guarantees that hold for every transport.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/transport/control_plane.h"
#include "penstock/transport/data_plane.h"
#include "penstock/transport/tag.h"

namespace penstock {

/// One rank's endpoint of a world.
class Transport : public ControlPlane, public DataPlane {
 protected:
  /// Throws TransportError if this world has no such rank.
  void require_rank(WorldRank rank) const {
    require<TransportError>(rank.value() >= 0 && rank.value() < size(), "there is no rank ", rank.value(),
                            ": this world has ", size());
  }
  /// What send() asks first: throws WorldAborted when the world has been aborted, and as require_rank().
  void require_can_send(WorldRank to) const {
    if (const auto reason = aborted()) throw WorldAborted(say("rank ", rank().value(), " sends no more: ", *reason));
    require_rank(to);
  }
};

struct TransportOptions {
  /// A wait for a peer fails when the peer gave no sign of life for this long. A live process answers whatever its rank
  /// does. Ranks of one process always live, so that among them only a circular wait fails.
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  /// A wait for a peer fails when the peer made no progress for this long, alive or not; none: no limit.
  std::optional<std::chrono::milliseconds> stall_limit = std::nullopt;
  /// Processes: how long opening an endpoint waits until all processes have opened theirs.
  std::chrono::milliseconds start_deadline = std::chrono::seconds(60);
  /// Threads: spin briefly before sleeping. Only sensible where ranks x threads <= cores.
  bool spin = false;
};

/// The endpoints of a world of `size` threads, by rank.
std::vector<std::unique_ptr<Transport>> open_threads(int size, const TransportOptions& options);

/// Whether this build supports MPI.
bool mpi_available();

/// This process's endpoint of a world of all processes of the MPI job. The first call initializes MPI, which is
/// finalized when the process ends. Several worlds, successive or concurrent, have separate messages, even after one
/// has failed; every process opens the same worlds in the same order. Throws TransportError when a process does not
/// come within options.start_deadline, naming the missing processes where they are known, and ConfigError where this
/// build has no MPI, and for processes of another build. Destroying the endpoint waits until every live rank destroys
/// its own; after an abort it returns within half a second. A process whose last world failed does not finalize MPI, so
/// that mpirun ends the job.
std::unique_ptr<Transport> open_mpi(const TransportOptions& options);

/// Whether this build and its LibTorch support Gloo.
bool gloo_available();

/// This process's endpoint of a world of all processes that torchrun, or another launcher, has started, as
/// launch_environment.h reads rank, size and rendezvous from the environment. Worlds are as those of open_mpi(). Throws
/// ConfigError if the environment does not say enough or names what does not exist, for processes of another build or
/// number of ranks, for those that do not join within options.start_deadline, naming these, and if this build has no
/// Gloo; TransportError if a process that has joined is stopped, has ended, or cannot be connected until then. A
/// process that would be ended by SIGPIPE ignores it from
/// then on.
std::unique_ptr<Transport> open_gloo(const TransportOptions& options);

/// Whether this build and its LibTorch support NCCL.
bool nccl_available();

/// As open_gloo(), with channels of NCCL for tensors on GPUs: nccl_groups(). Throws ConfigError where this build has
/// no NCCL or no Gloo.
std::unique_ptr<Transport> open_nccl(const TransportOptions& options);

}  // namespace penstock
