// The update of a rank's parameters: gradient hooks, the norm and clipping, the loss scale, the optimisers, averages.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "penstock/rank/gradient_reducer.h"
#include "penstock/rank/job.h"
#include "penstock/rank/optimizer.h"
#include "penstock/rank/options.h"
#include "penstock/rank/replica_rows.h"
#include "penstock/rank/stage.h"

namespace penstock::rank {

/// The scale of the loss in fp16 training. It is the same on every rank, because all ranks use the same gradient norm.
/// A plain value. Without fp16 the scale is always 1.
class LossScaler {
 public:
  LossScaler(Precision precision, const LossScaling& scaling);

  /// The factor of this step's loss.
  double scale() const { return scale_; }
  /// Whether updates are skipped where gradients are not finite: under fp16.
  bool is_dynamic() const { return is_dynamic_; }
  /// What decides about later scales: for checkpoints.
  struct State {
    double scale = 1;
    int good_steps = 0;
  };
  State state() const { return {scale_, good_steps_}; }
  /// Does nothing without fp16.
  void load(const State& state);
  /// Ends a step, and sets the scale of the next one by whether this step's gradients were finite.
  void end_step(bool is_finite);

 private:
  LossScaling scaling_;
  bool is_dynamic_;
  double scale_ = 1;
  int good_steps_ = 0;  // since the scale changed
};

/// Throws ConfigError for an initial scale that is not a power of two from 2^-24 to 2^24, and for growth_steps below 1.
void require_loss_scaling(const LossScaling& scaling);

/// The exponential moving average of the parameters of a rank's stages. Used on its rank's thread.
class ParameterAverages {
 public:
  /// `stages` must outlive it.
  explicit ParameterAverages(const RankStages& stages) : stages_(stages) {}

  /// Starts averages of the trained parameters, from their present values.
  void keep(double decay);
  /// To be called after each update of `stage`. Does nothing unless averages are kept.
  void add(const Stage& stage);
  /// The averages of one stage, by parameter.
  const std::map<std::string, torch::Tensor>& of(StageId stage) { return averages_[stage]; }
  /// Where averages are kept, takes those of a stage from `averages`, and the value of a trained parameter that they
  /// lack.
  void load(const Stage& stage, const std::map<std::string, torch::Tensor>& averages);
  /// Exchanges the values of parameters and their averages.
  void swap();

 private:
  const RankStages& stages_;
  std::optional<double> decay_;
  std::map<StageId, std::map<std::string, torch::Tensor>> averages_;  // by parameter
};

/// Throws ConfigError for a norm that gradients cannot be clipped to.
void require_clipping(const PipelineOptions& options);

/// Throws ConfigError for a `zero` that is not 0 or 1, and for 1 with one replica.
void require_zero(const PipelineOptions& options, int replicas);

/// Used on its rank's thread, except for const functions while the rank is idle.
class ParameterUpdater {
 public:
  /// `placement`, `stages` and `reducer` must outlive it.
  ParameterUpdater(const StagePlacement& placement, const RankStages& stages, GradientReducer& reducer,
                   const RankSetting& setting);

  /// Makes an optimiser for the parameters of each stage, instead of earlier ones.
  void make_optimizers(const OptimizerFactory& factory);
  /// Makes optimisers for parameters that were unfrozen and have none. Does nothing before make_optimizers().
  void add_optimizers();
  /// Adds a hook that runs on the gradients of an update, after their reduction and before clipping.
  void add_hook(const GradientHook& hook) { hooks_.push_back(hook); }
  ParameterAverages& average() { return average_; }
  /// The bytes of the optimisers' state on this rank; 0 if they have no state().
  std::int64_t state_bytes() const;
  /// The state of a stage on replica 0, of all rows; on other replicas nothing. Called on every replica; `round` differs
  /// for each call.
  OptimizerState optimizer_state(const Stage& stage, std::uint64_t round) const;
  /// Copies the state of these optimisers from `state`, which may hold others' too. Afterwards a frozen parameter
  /// without a state has no optimiser. Throws as Optimizer::load_state.
  void load_optimizer_state(const Stage& stage, const OptimizerState& state);
  /// Gives the optimisers the learning rates with which they were made, where these are known.
  void reset_learning_rate();
  LossScaler& loss_scaler() { return scaler_; }

  /// To be called before each job, which must live until its end.
  void begin(const StepJob& job);
  /// Which sums over replicas the running job needs.
  ReducedRows needed_rows() const;
  /// The factor of the loss in the backward pass.
  double loss_scale() const { return scaler_.scale(); }
  /// The gradients that await the update, by parameter name and divided by the loss scale.
  std::vector<std::pair<std::string, torch::Tensor>> gradients();
  /// NORM: runs the hooks, and measures the norm of the gradients of all ranks. Runs once for all stages of a rank.
  void measure_norm();
  /// STEP: the update of one stage.
  void update(Stage& stage);
  /// On a device, where a norm was measured that no rank has read: queues its copy to the host.
  void begin_read_back();
  /// To be called when the device has completed the step: reports the norm to the job's state.
  void end_read_back();
  /// To be called after the updates of a step: adapts the loss scale. Returns whether the parameters were updated.
  bool end_update();

 private:
  /// The state of this rank's optimisers of one stage, in tensors that may share their memory.
  OptimizerState own_state(StageId stage) const;
  void add_optimizer(StageId stage, const std::vector<NamedParameter>& parameters);
  void run_hooks(const Stage& stage);
  bool shares_state() const { return options_.zero > 0; }
  /// The rows of a parameter that `replica` updates: all unless replicas share the optimiser's state.
  ReplicaRows rows_of(const std::string& name, const torch::Tensor& parameter, Replica replica) const;
  /// Exchanges the updated rows of a stage's parameters with the other replicas.
  void exchange_values(const Stage& stage) const;
  /// The gradient with the factor that clips the norm of all gradients; itself where that is 1 for certain.
  torch::Tensor clipped(const torch::Tensor& gradient) const;
  void set_norm(double norm);
  /// Whether the update is skipped. REQUIRES: the norm has been measured.
  bool skips_update() const;

  const StagePlacement& placement_;
  const RankStages& stages_;
  GradientReducer& reducer_;
  c10::Device device_;
  const PipelineOptions& options_;
  LossScaler scaler_;
  OptimizerFactory make_optimizer_;
  struct Made {
    std::unique_ptr<Optimizer> optimizer;
    std::optional<double> rate;  // with which it was made
  };
  std::multimap<StageId, Made> optimizers_;  // several per stage after unfreezing parameters
  /// By stage and name, of the parameters with optimisers: what this rank updates; undefined if only other replicas do.
  std::map<std::pair<StageId, std::string>, torch::Tensor> optimized_;
  std::vector<GradientHook> hooks_;
  std::set<StageId> hooked_;  // stages whose gradients the hooks have processed in this step
  ParameterAverages average_;
  const StepJob* job_ = nullptr;
  std::optional<double> gradient_norm_;  // of the running job, after its NORM; divided by the loss scale
  torch::Tensor norm_on_device_;         // the same, while no rank has read it
};

}  // namespace penstock::rank
