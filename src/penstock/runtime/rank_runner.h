// One rank of one pipeline: its stages, and the handler that executes its instructions.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/model/sequence_memory.h"
#include "penstock/runtime/activation_store.h"
#include "penstock/runtime/batch_rows.h"
#include "penstock/runtime/boundary_messages.h"
#include "penstock/runtime/gradient_hook.h"
#include "penstock/runtime/held_bytes.h"
#include "penstock/runtime/job_results.h"
#include "penstock/runtime/loss_scaler.h"
#include "penstock/runtime/optimizer.h"
#include "penstock/runtime/rank_setting.h"
#include "penstock/runtime/reduce.h"
#include "penstock/runtime/stage.h"
#include "penstock/runtime/stage_placement.h"
#include "penstock/runtime/step_job.h"
#include "penstock/runtime/tied_gradients.h"

namespace penstock {

/// Used on its rank's thread, except for the constructor and const functions while the rank is idle. A handler for the
/// executor.
class RankRunner {
 public:
  /// `staged` must outlive it. Builds the stages that `training`, the full schedule, assigns to this rank.
  RankRunner(const StagedGraph& staged, const Schedule& training, const RankSetting& setting);

  const RankContext& context() const { return placement_.context(); }
  /// For each node of this rank's stages, whether it has parameters that train.
  std::vector<std::pair<int, bool>> trainable_nodes() const;
  const std::vector<std::unique_ptr<Stage>>& stages() const { return stages_; }
  void make_optimizers(const OptimizerFactory& factory);
  /// Freezes the parameters called `name` or "`name`.*", or unfreezes them; their optimiser state is kept.
  void set_trainable(const std::string& name, bool trains);
  /// Adds a hook that runs on the gradients of an update, after their reduction and before clipping.
  void add_gradient_hook(const GradientHook& hook) { gradient_hooks_.push_back(hook); }
  /// Starts averages of the trained parameters, from their present values.
  void keep_average(double decay);
  /// Exchanges the values of parameters and their averages.
  void swap_averages();
  const Recorder& recorder() const { return recorder_; }
  void clear_recorder() { recorder_.clear(); }
  /// The number of updates of this rank's stages: the smallest and the largest.
  struct Updates {
    std::int64_t fewest = 0;
    std::int64_t most = 0;
    bool torn = false;  // an update failed in the middle
  };
  Updates updates() const;
  /// Switches the timing of layers on or off. To be called between steps.
  void set_timing(bool on);
  /// The times of the layers in the `steps` steps since set_timing(true). By the node's number: F, B (or I) and W in ms
  /// (base/median.h), then bytes of output and parameters.
  std::vector<std::pair<std::string, torch::Tensor>> timed_nodes(std::size_t steps) const;
  /// Peak of live micro-batches.
  int peak_activations() const { return activations_.peak(); }
  /// Predicted peak of live micro-batches, over the executed schedules.
  int predicted_activations() const { return predicted_activations_; }
  /// The bytes of the live micro-batches; null unless RankSetting::count_bytes is set.
  const HeldBytes* held_bytes() const { return bytes_.get(); }

  /// The gradients after forward_backward (and reduce_gradients), by parameter name, until the update.
  std::vector<std::pair<std::string, torch::Tensor>> gradients();
  /// Makes all copies of a parameter or buffer equal: replica 0's owner stage sends its values to the other stages that
  /// use it and to the other replicas.
  void synchronise(std::uint64_t round);

  /// Executes one job and reports its result to the job's state. Never throws: a failure cancels the step or aborts the
  /// world, and ends the state with the error.
  void run(const StepJob& job);
  /// Receives the outputs of step `step` that other ranks sent to this process. Never throws, as run().
  void fetch_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state);
  /// Frees the layers' memory of an inference session.
  void forget_session(std::uint64_t session) { sessions_.erase(session); }

  // The handler of the executor.
  void begin(const Instruction& instruction);
  Arrival receive(const Instruction& instruction);
  void perform(const Instruction& instruction);

 private:
  Transport& endpoint() const { return placement_.endpoint(); }
  Stage& stage(StageId id);

  void add_optimizers();
  void run_or_throw(const StepJob& job);
  void run_later_part(const CompiledSchedule& plan);
  std::vector<const StagePart*> parts() const;
  /// Whether the update is skipped. REQUIRES: the norm has been computed.
  bool skips_update() const;
  /// To be called after the updates of a step: adapts the loss scale.
  void end_update();
  void forward(Stage& stage, MicroBatch micro_batch);
  Stage::Forwarded run_layers(Stage& stage, const Stage::Arrivals& arrivals, MicroBatch micro_batch);
  /// Null in steps whose bytes are not counted.
  HeldBytes* counted_bytes();
  HeldBytes::Context context_of(StageId stage, MicroBatch micro_batch) const;
  /// By received value of `stage`: whether it comes from another rank.
  std::vector<bool> comes_from_others(const Stage& stage) const;
  void backward(Stage& stage, const Instruction& instruction);
  void weight_grad(Stage& stage, const Instruction& instruction);
  SequenceMemory* memory_of(const Stage& stage, MicroBatch micro_batch);
  /// Cancels the step or aborts the world because of `error`, which occurred at `doing`. Returns the error for the
  /// job's state.
  std::exception_ptr failed(const std::exception_ptr& error, const std::string& doing);
  /// Whether no rank can have updated a parameter in the running step.
  bool is_harmless(const StepJob& job) const;
  void reduce(Stage& stage);
  TieRoute tie_route(std::uint64_t round) const;
  ReplicaGroup replica_group(const Stage& stage, Traffic traffic, std::uint64_t round) const;
  void sum_replicas(const Stage& stage, Traffic traffic, const std::vector<std::size_t>& chosen, Tensors& gradients);
  void finish_ties();
  /// Before an evaluation or inference: copies the buffers of replica 0 to the other replicas, as a saved model has
  /// them.
  void share_buffers();
  Tensors& gradients_of(Stage& stage);
  void measure_norm();
  void hook_gradients(Stage& stage);
  void continue_gradients(Stage& stage);
  void add_to_average(const Stage& stage);
  void update(Stage& stage);

  const StagedGraph& staged_;
  RankSetting setting_;
  StagePlacement placement_;
  int micro_batches_;  // of the full schedule
  std::vector<std::unique_ptr<Stage>> stages_;
  OptimizerFactory make_optimizer_;
  std::multimap<StageId, std::unique_ptr<Optimizer>> optimizers_;  // several per stage after unfreezing parameters
  std::set<std::string> optimized_;                                // names of the parameters in optimizers_
  std::vector<GradientHook> gradient_hooks_;
  std::set<StageId> hooked_;  // stages whose gradients the hooks have processed in this step
  std::optional<double> average_decay_;
  std::map<StageId, std::map<std::string, torch::Tensor>> averages_;  // by parameter
  Recorder recorder_;
  Recorder untraced_{1};                             // records steps that traces do not contain
  std::vector<std::unique_ptr<LayerClock>> clocks_;  // by stage, while layers are timed
  ActivationStore<Activations> activations_;
  int predicted_activations_ = 0;
  std::unique_ptr<HeldBytes> bytes_;

  // The running step.
  const StepJob* job_ = nullptr;
  Instruction current_;
  BatchRows rows_;
  BoundaryMessages messages_;
  JobResults results_;
  std::map<StageId, Tensors> gradients_;  // by stage: per parameter, summed over uses and, after REDUCE, replicas
  bool ties_pending_ = false;             // REDUCE has sent uses of tied parameters; finish_ties() must receive totals
  std::optional<double> gradient_norm_;   // after the rank's first NORM; divided by the loss scale
  LossScaler scaler_;
  std::exception_ptr permanent_error_;       // the error of every further job, once ranks were given different batches
  bool buffers_differ_ = false;              // between replicas: a training step ran since they were shared
  std::size_t forwards_left_ = 0;            // of this rank, in this step
  std::map<StageId, std::int64_t> updates_;  // by stage: number of updates
  bool is_updating_ = false;                 // an optimiser's step is running, or has failed
  /// Sequence memory by inference session, then by stage and micro-batch.
  std::map<std::uint64_t, std::map<std::pair<StageId, MicroBatch>, SequenceMemory>> sessions_;
};

}  // namespace penstock
