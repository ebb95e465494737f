// Settings of a world: how many ranks, how messages travel, how long ranks wait for each other.
#pragma once

#include <chrono>
#include <optional>

namespace penstock {

enum class TransportKind {
  automatic,  // MPI where mpirun started this process, threads otherwise
  threads,
  mpi
};

struct WorldOptions {
  int stages = 1;    // pipeline ranks p
  int replicas = 0;  // d; 0: 1 for threads, the number of processes / stages under MPI
  TransportKind transport = TransportKind::automatic;
  int threads = 1;  // intra-op threads per rank; changes bits, so it is fixed and recorded
  /// A process that gives no sign of life for so long has failed: it died, was stopped, or cannot be reached. One that
  /// lives gives signs of life by itself, however long a layer, a hook or an evaluation takes.
  std::chrono::milliseconds deadline = std::chrono::seconds(60);
  /// A rank that others wait for and that makes no progress for so long has failed, alive or not: begin an instruction,
  /// send, receive. None: instructions, hooks and whatever else may take as long as they like.
  std::optional<std::chrono::milliseconds> stall_limit = std::nullopt;
  /// Under MPI: how long the processes may take until all of them have come to the world.
  std::chrono::milliseconds start_deadline = std::chrono::seconds(60);
};

}  // namespace penstock
