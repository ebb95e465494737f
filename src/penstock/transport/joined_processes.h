// Processes that the program has joined itself, for worlds of these instead of all processes that a launcher has
// started: a part of an MPI job, or processes that share a store of c10d.
//
//   MPI_Comm half = MPI_COMM_NULL;                                       // two pipelines side by side
//   MPI_Comm_split(MPI_COMM_WORLD, rank % 2, 0, &half);
//   ps::World world({.stages = 2, .processes = ps::mpi_processes(MPI_Comm_c2f(half))});
//
//   const auto mine = c10::make_intrusive<c10d::PrefixStore>("left", store);
//   ps::World world({.stages = 2, .processes = ps::store_processes(mine, {.rank = 0, .size = 2})});
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace penstock {

class Transport;
struct TransportOptions;

/// This process and others, which all have such an object of the same processes. It may be used for several worlds, at
/// the same time or one after the other; every process makes the same worlds of it in the same order. Used by one
/// thread at a time.
class JoinedProcesses {
 public:
  virtual ~JoinedProcesses() = default;
  JoinedProcesses(const JoinedProcesses&) = delete;
  JoinedProcesses& operator=(const JoinedProcesses&) = delete;

  /// "mpi", "gloo" or the name of the groups.
  virtual std::string transport() const = 0;
  /// The number of processes.
  virtual int size() const = 0;
  /// This process's endpoint of a new world of these processes; collective. Errors are those of open_mpi() and
  /// open_gloo(). For World.
  virtual std::unique_ptr<Transport> open(const TransportOptions& options) = 0;

 protected:
  JoinedProcesses() = default;
};

/// The processes of an MPI communicator, given as MPI_Comm_c2f(communicator) because this header does without MPI's. A
/// process's world rank is its rank there. Each world has a duplicate of the communicator, so the program's own
/// messages on it are apart; while a world is made, the program must not begin collective operations on it. The
/// communicator must exist as long as this object, and MPI until the last of its worlds is destroyed. Throws
/// ConfigError for a communicator that this process is not in, for one between two groups, where MPI does not run or
/// was not initialized with MPI_THREAD_MULTIPLE, and where this build has no MPI.
std::shared_ptr<JoinedProcesses> mpi_processes(int communicator);

/// A process's number among `size`.
struct ProcessRank {
  int rank = 0;
  int size = 1;
};

/// How tensors on devices travel between two processes without the memory of the host: in groups of these two, such as
/// those of NCCL, one for each direction.
struct DeviceGroups {
  /// The name of the transport: "nccl".
  std::string name;
  c10::DeviceType device_type;
  /// A group of two processes that meet in `store`, a part of the store of all; this one is `own`. It needs send(),
  /// recv() and abort(). Transfers of a group complete in their order; send() and recv() do not wait for each other,
  /// and are ordered with the current stream as those of c10d's backend for NCCL are.
  std::function<c10::intrusive_ptr<c10d::Backend>(const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own)> make;
  /// Whether the library cannot join two ranks that have the same device, which connecting them then refuses.
  bool needs_own_devices = false;
};

/// Those of NCCL, for GPUs. Every rank needs a GPU of its own. Throws ConfigError where this build has no NCCL.
DeviceGroups nccl_groups();

/// The processes that share `store` (such as a TCPStore, or for parts of them a PrefixStore with a name for each part),
/// connected by Gloo. Those of a process group of c10d are store_processes(group.getStore(), {group.getRank(),
/// group.getSize()}). Penstock's keys begin with "penstock/"; those that former starts have left there do no harm. The
/// store must work until the last world is made. Throws ConfigError for a rank that is not below the size, without a
/// store, and where this build has no Gloo. With `groups`, tensors on devices travel in these; then the store must work
/// until the last pipeline is made.
std::shared_ptr<JoinedProcesses> store_processes(const c10::intrusive_ptr<c10d::Store>& store, ProcessRank own,
                                                 const std::optional<DeviceGroups>& groups = {});

}  // namespace penstock
