// The ranks of a job: p pipeline ranks times d replicas, as threads of this process or as processes that mpirun or
// torchrun has started, or that the program has joined itself.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/world/failures.h"
#include "penstock/world/world_options.h"

namespace penstock {

class RankThreads;
class Transport;

/// World rank = pipeline rank * d + replica, so that the replicas of a stage have consecutive ranks.
/// Under threads every rank is local; otherwise each process has one rank. The same program runs either way.
/// A world must outlive its pipelines. Not thread-safe: only the thread that made it may use it, except for fail() and
/// fail_by(). A call marked "collective" must be made by every process.
class World {
 public:
  /// Waits for all processes. Throws ConfigError when the number of processes is not stages x replicas, when a launcher
  /// started several processes that this build cannot connect (no MPI under mpirun, no Gloo under torchrun), and when
  /// WorldOptions::processes are joined by another transport than WorldOptions::transport; TransportError when a
  /// process does not come within WorldOptions::start_deadline.
  explicit World(const WorldOptions& options);
  /// Uses the caller's endpoints, one per local rank, all of one world. For tests.
  World(std::vector<std::unique_ptr<Transport>> endpoints, const WorldOptions& options);
  /// After a failure, does not wait for ranks that hang in the program's own code. Waits for the other
  /// processes; where an exception unwinds through the world's scope, ends them instead. A failure that no call has
  /// thrown yet is logged, and ends a job of several processes; call finish() first to have it thrown.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// Waits for everything that was submitted, on all processes. Throws the first failure that no call has thrown yet,
  /// such as that of a last step whose result the program did not read, and TransportError when another process fails
  /// meanwhile. Collective; the world can be used afterwards.
  void finish();
  /// Ends all other processes, and every wait here, within a second; they report "rank 1 failed: " and `reason`. For
  /// failures only on this process, outside of the ranks' own work. After the first failure anywhere it does nothing.
  /// May be called from any thread.
  void fail(const std::string& reason) const noexcept;
  /// Runs `program`, then finish(). Where either throws, reports the error to the other processes and rethrows it.
  template <class Program>
  void run(Program&& program) {
    try {
      program();
      finish();
    } catch (...) {
      fail_by(std::current_exception());
      throw;
    }
  }
  /// fail() with the text of `error`, unless the other processes have this error already.
  void fail_by(const std::exception_ptr& error) const noexcept;

  int stages() const;    // p
  int replicas() const;  // d
  int size() const;      // p * d
  int threads() const;   // intra-op threads per rank
  /// The ranks of this process; of world rank 0 under threads, where one process holds all ranks.
  int rank() const;        // world rank, below p * d
  int stage_rank() const;  // pipeline rank, below p
  int replica() const;     // data-parallel replica, below d
  /// The same for any world rank, and back.
  int stage_rank_of(WorldRank rank) const { return rank.value() / replicas(); }
  int replica_of(WorldRank rank) const { return rank.value() % replicas(); }
  WorldRank rank_of(int stage_rank, int replica) const { return WorldRank(stage_rank * replicas() + replica); }
  /// "threads", "mpi", "gloo", "nccl" or the name of other DeviceGroups.
  std::string transport() const;
  /// Whether this process holds world rank 0: the one that should write files and print results.
  bool is_main() const;
  /// Whether this process should print progress, such as losses: true on the main process, and on every process if each
  /// has its own log, as under `penstock launch` and `mpirun --output-filename`. The environment variable
  /// PENSTOCK_LOG_EVERY_RANK (1 or 0) overrides.
  bool should_log() const;
  /// "8 ranks = 2 pipeline ranks x 4 replicas, mpi, 1 thread per rank".
  std::string describe() const;

  /// The reason for which the world has failed; none while it works.
  std::optional<std::string> failed() const;

 private:
  friend RankThreads& ranks_of(const World& world);

  std::unique_ptr<RankThreads> ranks_;
};

}  // namespace penstock
