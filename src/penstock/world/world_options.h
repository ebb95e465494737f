// Settings of a world: how many ranks, how messages travel, how long ranks wait for each other. Free of LibTorch.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

namespace penstock {

class JoinedProcesses;
namespace joining {
struct LaunchedAs;
enum class AskedTransport;
}  // namespace joining

enum class TransportKind {
  automatic,  // MPI where mpirun started this process, Gloo where torchrun did, threads otherwise
  threads,
  mpi,
  gloo,
  nccl  // Gloo, with NCCL for tensors on GPUs
};

struct WorldOptions {
  int stages = 1;    // pipeline ranks p
  int replicas = 0;  // d; 0: 1 for threads, otherwise the number of processes / stages
  TransportKind transport = TransportKind::automatic;
  /// The processes of the world, where the program has joined them itself (transport/joined_processes.h); their
  /// transport is that of the world. Null: threads, or all processes that a launcher has started, as `transport` says.
  std::shared_ptr<JoinedProcesses> processes = nullptr;
  int threads = 1;  // intra-op threads per rank; results depend on it bitwise, so it is fixed and recorded
  /// A process without a sign of life for this long has failed: it died, was stopped, or cannot be reached. A live
  /// process answers from a thread of its own, however long a layer, a hook or an evaluation takes.
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  /// A rank that others wait for has failed, even if its process lives, when it makes no progress for this long: begins
  /// no instruction, sends and receives nothing. None: an instruction or a hook may take any time.
  std::optional<std::chrono::milliseconds> stall_limit = std::nullopt;
  /// Processes: how long the constructor of the world waits until all processes have called it.
  std::chrono::milliseconds start_deadline = std::chrono::seconds(60);
};

/// Whose variables hold for a world of this transport (transport/joining/launch_environment.h).
joining::AskedTransport asked_transport(TransportKind wanted);

/// The transports between processes that a build has.
struct BuiltTransports {
  bool mpi = false;
  bool gloo = false;
};

/// Never TransportKind::automatic. A launcher's world of one process has nothing to join: gloo and nccl are threads
/// there. Throws ConfigError for a choice that would run `launched.size` whole jobs side by side, or that this build or
/// this launcher cannot serve.
TransportKind choose_transport(TransportKind wanted, const joining::LaunchedAs& launched, const BuiltTransports& built);

}  // namespace penstock
