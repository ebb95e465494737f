// The ranks of a pipeline: each executes jobs on its stages, and decides what a failure ends.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/model/stages.h"
#include "penstock/rank/gradient_reducer.h"
#include "penstock/rank/job.h"
#include "penstock/rank/parameter_updater.h"
#include "penstock/rank/result.h"
#include "penstock/rank/stage.h"
#include "penstock/rank/state_copies.h"
#include "penstock/rank/step_executor.h"
#include "penstock/trace/recorder.h"
#include "penstock/transport/tag.h"
#include "penstock/world/device.h"
#include "penstock/world/world.h"

namespace penstock::rank {

/// One rank of one pipeline. Used on its rank's thread, except for the constructor and const functions while the rank
/// is idle.
class RankRunner {
 public:
  /// `staged` must outlive it. Builds the stages that `training`, the full schedule, assigns to this rank.
  RankRunner(const StagedGraph& staged, const Schedule& training, const RankSetting& setting);
  RankRunner(const RankRunner&) = delete;
  RankRunner& operator=(const RankRunner&) = delete;

  const RankContext& context() const { return placement_.context(); }
  /// All functions but const ones run within a RankDeviceGuard for it.
  const RankDevice& device() const { return device_; }
  const RankStages& stages() const { return stages_; }
  const StepExecutor& executor() const { return executor_; }
  ParameterUpdater& updater() { return updater_; }
  StateCopies& copies() { return copies_; }
  StageClocks& clocks() { return clocks_; }
  /// The rank's thread waits for the device, watched as DataPlane::await_stream() is. `what` names the wait.
  void await_device(const std::string& what) const;
  Recorder& recorder() { return recorder_; }
  /// What a checkpoint holds of a rank beside tensors.
  struct Restored {
    bool has_learning_rate = false;                              // false: the optimiser's own rate applies again
    std::optional<LossScaler::State> loss_scale = std::nullopt;  // none without fp16
  };
  /// To be called after the rank was given the tensors of a checkpoint.
  void begin_at(const Restored& restored);
  /// Whether the newest training step failed, so that its update is missing; false for one with an invalid loss, which
  /// has none.
  bool has_failed() const { return has_failed_; }
  /// For each node of this rank's stages, whether it has parameters that train.
  std::vector<std::pair<int, bool>> trainable_nodes() const;
  /// Stage::set_trainable() of all stages; the optimiser state of parameters is kept.
  void set_trainable(const Trains& trains);

  /// Executes the instructions of one job, and what belongs to them, within a RankDeviceGuard of its own. Reports the
  /// result to the job's state. Never throws: a failure cancels the step or aborts the
  /// world, and ends the state with the error.
  void run(const StepJob& job);
  /// Receives the outputs of step `step` that other ranks sent to this process. Never throws, as run().
  void fetch_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state);
  /// The parameters were given other values than those of the newest update.
  void forget_last_update() { last_update_.reset(); }
  /// Frees the layers' memory of an inference session.
  void forget_session(std::uint64_t session) { executor_.forget_session(session); }

 private:
  /// Ends `job`. `error`: what its instructions threw; none if they succeeded.
  void end(const StepJob& job, const std::exception_ptr& error);
  /// The error of a step that was refused: an InvalidLoss where its loss was the cause, else `failure`. Called on every
  /// rank. `own` is the error that occurred on this rank.
  std::exception_ptr explained(const StepJob& job, const std::exception_ptr& failure, const std::exception_ptr& own);
  /// Cancels the step or aborts the world because of `error`, which occurred at `doing`. Returns the error for the
  /// job's state.
  std::exception_ptr failed(const std::exception_ptr& error, const std::string& doing);
  /// Whether no rank can have updated a parameter in the running job.
  bool is_harmless(const StepJob& job) const;

  RankSetting setting_;
  RankDevice device_;
  StagePlacement placement_;
  int micro_batches_;  // of the full schedule
  RankStages stages_;
  GradientReducer reducer_;
  ParameterUpdater updater_;
  StateCopies copies_;
  StageClocks clocks_;
  StepExecutor executor_;
  Recorder recorder_;
  Recorder untraced_{1};                      // records steps that traces do not contain
  const StepJob* job_ = nullptr;              // the running job
  bool has_failed_ = false;                   // the newest training step, other than by an invalid loss
  std::exception_ptr permanent_error_;        // the error of every further job, once ranks were given different batches
  std::optional<std::uint64_t> last_update_;  // the newest training step that updated the parameters
  bool was_refused_ = false;                  // the newest training step that refuses invalid losses has failed
};

/// The runners of this process's ranks in one pipeline. Owns them and what they refer to. Shared by the pipeline and by
/// the work that is posted here, because work that hangs after a failure may outlive the Pipeline. Used by the
/// program's thread; each runner by its rank's thread.
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
  int count() const { return static_cast<int>(runners_.size()); }
  /// Whether any of these ranks reads the network's inputs.
  bool read_inputs() const;

  /// Gives `job` its state, queues it for every runner, and returns its result. It must not change any more. Of steps
  /// and evaluations one runs, and the next one waits: first waits for the job before the last. An inference never
  /// waits.
  StepResult start(const std::shared_ptr<StepJob>& job);
  /// Waits for the submitted jobs; throws the error of a failed one, unless it was a StepFailure reported before.
  void finish() const;
  /// The same, but never throws, and after a failure of the world does not wait for a rank that hangs.
  void settle() const noexcept;

  /// Queues `work`, which must not throw, for every runner, after earlier work, and returns.
  void post(const Work& work);
  /// Runs `work` on every runner and waits for all. Where one throws, aborts the world and rethrows.
  void run(const Work& work) const;

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

}  // namespace penstock::rank
