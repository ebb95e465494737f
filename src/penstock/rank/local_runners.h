// The runners of this process's ranks in one pipeline, and the jobs that they execute.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "penstock/model/stages.h"
#include "penstock/rank/rank_runner.h"
#include "penstock/rank/result.h"
#include "penstock/rank/step_job.h"
#include "penstock/transport/tag.h"
#include "penstock/world/world.h"

namespace penstock {

/// Owns the runners and what they refer to. Shared by the pipeline and by the work that is posted here, because work
/// that hangs after a failure may outlive the Pipeline. Used by the program's thread; each runner by its rank's thread.
class LocalRunners : public std::enable_shared_from_this<LocalRunners> {
 public:
  using Work = std::function<void(RankRunner&)>;

  /// `world` must outlive it, `pipeline` is the number of the pipeline in the world.
  LocalRunners(World& world, std::uint32_t pipeline, StagedGraph staged);

  /// Makes every runner on its rank's thread. To be called once, before all functions below. Collective.
  void make(const std::function<std::unique_ptr<RankRunner>(const RankContext&)>& make_runner);

  World& world() const { return world_; }
  const StagedGraph& staged() const { return staged_; }
  /// By local rank.
  const std::vector<std::unique_ptr<RankRunner>>& all() const { return runners_; }
  RankRunner& of(WorldRank local) const { return *runners_[index_of(local)]; }
  int count() const { return static_cast<int>(runners_.size()); }
  /// Whether any of these ranks reads the network's inputs.
  bool read_inputs() const;

  /// Submits a step or an evaluation and returns its result. One job runs, and the next one waits: first waits for
  /// the job before the last.
  StepResult start(const std::shared_ptr<StepJob>& job);
  /// Gives `job` its state. To be called before submit().
  void prepare(StepJob& job) const;
  /// Submits a prepared job without waiting. It must not change any more.
  void submit(const std::shared_ptr<StepJob>& job);
  /// Waits for the submitted jobs; throws the error of a failed one, unless it was a StepFailure reported before.
  void finish() const;
  /// The same, but never throws, and after a failure of the world does not wait for a rank that hangs.
  void settle() const noexcept;

  /// Queues `work`, which must not throw, for every runner, after earlier work, and returns.
  void post(const Work& work);
  /// Runs `work` on every runner and waits for all. Where one throws, aborts the world and rethrows.
  void run(const Work& work) const;
  /// The calling thread waits for what the runners have queued on their devices.
  void synchronize() const;

  /// The tag of the next gather operation of the pipeline: the same on every process.
  Tag next_gathering() { return control_tag(pipeline_, Topic::gathering, ++gatherings_); }
  /// The number of the next checkpoint of the pipeline: the same on every process.
  std::uint64_t next_save() { return ++saves_; }

 private:
  std::size_t index_of(WorldRank rank) const;

  World& world_;
  std::uint32_t pipeline_;
  StagedGraph staged_;
  std::vector<std::unique_ptr<RankRunner>> runners_;
  std::shared_ptr<StepState> last_, before_last_;  // of submitted jobs
  std::uint64_t gatherings_ = 0;
  std::uint64_t saves_ = 0;
};

}  // namespace penstock
