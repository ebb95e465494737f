// The ranks of a world that are in this process: their endpoints, their threads, and the failures of their steps. For
// the modules that run ranks; programs see World (world.h).
#pragma once

#include <chrono>
#include <cstdint>
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
#include "penstock/world/rank_watch.h"
#include "penstock/world/worker.h"
#include "penstock/world/world_options.h"

namespace penstock {

class World;

/// Used by the thread that made its world, except for fail(). A call marked "collective" must be made by every process.
class RankThreads {
 public:
  /// `endpoints`: one per local rank, all of one world, whose size is options.stages x options.replicas.
  RankThreads(std::vector<std::unique_ptr<Transport>> endpoints, const WorldOptions& options);
  /// As ~World(). REQUIRES: is_own_process().
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  /// With the number of replicas.
  const WorldOptions& options() const { return options_; }
  int size() const { return endpoints_.front()->size(); }
  /// The ranks of this process, ascending.
  const std::vector<WorldRank>& local_ranks() const { return local_ranks_; }
  /// Whether all ranks of the world are in this process.
  bool is_alone() const { return static_cast<int>(local_ranks_.size()) == size(); }
  /// The rank numbers and the endpoint of a local rank, for use on that rank's thread.
  RankContext context(WorldRank local) const;
  /// context() of the first one.
  RankContext first() const { return context(local_ranks_.front()); }
  /// A number for a new pipeline: the same on every rank for the n-th pipeline of this world.
  std::uint32_t next_pipeline() { return pipelines_++; }

  /// Queues `job`, which must not throw, on a local rank's thread, after all earlier jobs, and returns.
  void post(WorldRank local, std::function<void()> job) const;
  /// Runs `job` on every local rank's thread and waits for all. Where one throws, aborts the world, so that no other
  /// rank waits for the failed one, and rethrows the error that caused the others.
  void run_on_local_ranks(const std::function<void(const RankContext&)>& job) const;
  /// As World::finish(). Collective.
  void finish();

  /// As World::fail().
  void fail(const std::string& reason) const noexcept;
  /// The reason for which the world has failed; none while it works.
  std::optional<std::string> failed() const { return watch_->failed(); }
  /// ControlPlane::is_lost(), as far as this process knows.
  bool is_lost(WorldRank rank) const { return endpoints_.front()->is_lost(rank); }
  /// Whether the world survives a step that fails (ControlPlane::can_cancel); false over nccl.
  bool can_cancel_steps() const { return endpoints_.front()->can_cancel(); }
  /// Ends the other processes' waits for messages of pipeline number `pipeline`, because an exception ended it here.
  void leave_pipeline(std::uint32_t pipeline) const noexcept;
  /// The failures of this world's steps, and which of them a call has thrown.
  const std::shared_ptr<Failures>& failures() const { return failures_; }
  /// Watches this process's ranks while the program's thread waits for them.
  const std::shared_ptr<const RankWatch>& watch() const { return watch_; }

  /// False in a child process after fork(), which has no rank threads.
  bool is_own_process() const;
  /// Throws ConfigError unless is_own_process().
  void require_own_process() const;

 private:
  std::size_t local_index(WorldRank rank) const;
  bool wait_for_workers() const;
  std::string reason_to_leave(const char* what) const;

  const WorldOptions options_;
  std::vector<WorldRank> local_ranks_;
  std::vector<std::shared_ptr<Transport>> endpoints_;  // by local rank
  std::vector<std::unique_ptr<Worker>> workers_;       // by local rank
  std::uint32_t pipelines_ = 0;
  std::uint64_t finishes_ = 0;
  const std::shared_ptr<Failures> failures_ = std::make_shared<Failures>();
  std::shared_ptr<const RankWatch> watch_;
  const long process_;
  const int exceptions_ = std::uncaught_exceptions();  // may be above 0 where a destructor makes the world
};

/// The ranks of `world` in this process; as long as the world.
RankThreads& ranks_of(const World& world);

/// Calls `decide` on world rank 0 and returns its result on every rank. Collective.
std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide);

}  // namespace penstock
