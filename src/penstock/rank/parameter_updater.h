// The update of a rank's parameters: gradient hooks, the norm and clipping, the loss scale, the optimisers.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/rank/gradient_hook.h"
#include "penstock/rank/gradient_reducer.h"
#include "penstock/rank/loss_scaler.h"
#include "penstock/rank/optimizer.h"
#include "penstock/rank/parameter_averages.h"
#include "penstock/rank/rank_setting.h"
#include "penstock/rank/stage.h"
#include "penstock/rank/stage_placement.h"
#include "penstock/rank/step_job.h"

namespace penstock {

/// Throws ConfigError for a norm that gradients cannot be clipped to.
void require_clipping(const PipelineOptions& options);

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
  /// The state of the optimisers of one stage, in tensors that may share their memory.
  OptimizerState optimizer_state(StageId stage) const;
  /// Copies the state of these optimisers from `state`, which may hold others' too. Throws as Optimizer::load_state.
  void load_optimizer_state(StageId stage, const OptimizerState& state);
  /// Gives the optimisers the learning rates with which they were made, where these are known.
  void reset_learning_rate();
  LossScaler& loss_scaler() { return scaler_; }

  /// To be called before each job, which must live until its end.
  void begin(const StepJob& job);
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
  void step_optimizers(Stage& stage);
  void run_hooks(const Stage& stage);
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
  std::set<std::string> optimized_;          // names of the parameters in optimizers_
  std::vector<GradientHook> hooks_;
  std::set<StageId> hooked_;  // stages whose gradients the hooks have processed in this step
  ParameterAverages average_;
  const StepJob* job_ = nullptr;
  std::optional<double> gradient_norm_;  // of the running job, after its NORM; divided by the loss scale
  torch::Tensor norm_on_device_;         // the same, while no rank has read it
};

}  // namespace penstock
