// The ranks of a job: p pipeline ranks times d replicas, as threads of this process or as MPI processes.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/transport/transport.h"
#include "penstock/world/failures.h"
#include "penstock/world/rank_context.h"
#include "penstock/world/world_options.h"

namespace penstock {

/// World rank = pipeline rank * d + replica: the replicas of a stage sit together.
/// Under threads every rank is local; under MPI each process has one. The same program serves both.
/// A world must outlive the pipelines made in it. Not thread-safe: used by the thread that made it.
class World {
 public:
  /// Throws ConfigError when the number of processes does not fit stages x replicas, or when this process was started
  /// as one of several that nothing joins (a build without MPI under mpirun, torchrun).
  explicit World(const WorldOptions& options);
  /// The same for programs that hand their arguments over as MPI programs do; they are not looked at.
  World(int argc, char** argv, const WorldOptions& options);
  /// Over endpoints of the caller's own, one per local rank, all of one world: the seam for tests.
  World(std::vector<std::unique_ptr<Transport>> endpoints, const WorldOptions& options);
  /// After a failure, ranks that hang in their own code are left behind rather than waited for. Under MPI waits for the
  /// other processes; while an exception leaves the world's block it ends them instead. A failure that nobody has been
  /// told is logged, and under MPI ends the job: call finish() to be told.
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  /// The end of the work, on every process: waits for everything that was submitted, here and on the other processes.
  /// Throws the first failure that nobody has been told yet, such as that of a last step whose result nobody asked for;
  /// TransportError when another process failed meanwhile. Collective; the world can be used afterwards.
  void finish();
  /// Ends all other processes, and every wait here, within a second: "rank 1 failed: ", and `reason`. For what goes
  /// wrong on this process alone, outside of the ranks' own work. After the first failure anywhere it does nothing.
  void fail(const std::string& reason) const noexcept;
  /// Runs `program`, then finish(). What either throws is told to the other processes before it is thrown here.
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
  /// fail(), with what `error` says, where there are other processes that do not know it yet.
  void fail_by(const std::exception_ptr& error) const noexcept;

  int stages() const;    // p
  int replicas() const;  // d
  int size() const;      // p * d
  int threads() const;   // intra-op threads per rank
  /// This process's place. Under threads, where a process holds every rank, that of world rank 0.
  int rank() const;        // of p * d
  int stage_rank() const;  // of p: which part of the pipeline
  int replica() const;     // of d: which pipeline
  /// Anyone's place.
  int stage_rank_of(WorldRank rank) const { return rank.value() / replicas(); }
  int replica_of(WorldRank rank) const { return rank.value() % replicas(); }
  WorldRank rank_of(int stage_rank, int replica) const { return WorldRank(stage_rank * replicas() + replica); }
  /// "threads" or "mpi".
  std::string transport() const;
  /// The process that speaks for the job: it holds world rank 0.
  bool is_main() const;
  /// Whether this process should print what people follow a run by, its losses say: the main one does, and under
  /// `penstock launch`, which keeps a log of every process, each. (PENSTOCK_LOG_EVERY_RANK=1, or 0, says so without.)
  bool speaks() const;
  /// "8 ranks = 2 stages x 4 replicas, mpi, 1 thread per rank".
  std::string describe() const;

  /// The ranks of this process, ascending.
  const std::vector<WorldRank>& local_ranks() const;
  /// One local rank's place and endpoint: for use on its own thread.
  RankContext context(WorldRank local) const;
  /// Runs `job`, which must not throw, on a local rank's thread, after what was posted there before.
  void post(WorldRank local, std::function<void()> job) const;
  /// Runs `job` on every local rank's thread and waits for all. Rethrows the error that caused the others, after
  /// aborting the world so that no other rank waits for one that failed.
  void run_on_local_ranks(const std::function<void(const RankContext&)>& job) const;
  /// A number that is the same on every rank for the n-th pipeline made in this world.
  std::uint32_t next_pipeline();
  /// Why the world has failed, if it has.
  std::optional<std::string> failed() const;
  /// Of the steps of this world.
  const std::shared_ptr<Failures>& failures() const;
  /// Throws ConfigError in a child after fork(), where no rank is.
  void require_own_process() const;
  /// An exception leaves pipeline number `pipeline` here: other processes wait for it no longer.
  void leave_pipeline(std::uint32_t pipeline) const noexcept;
  /// The members of this process in a fresh world of the same ranks, after this one has failed: to save what is left.
  /// Waits until their threads are at rest; throws RankFailure where one is not. Collective.
  std::vector<RankContext> rescued_members() const;

 private:
  bool wait_for_workers() const;
  std::string reason_to_leave(const char* what) const;

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace penstock
