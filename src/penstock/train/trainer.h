// The training loop around a pipeline: epochs, batches, evaluation and hooks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/data/data.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/train/checkpoint_hook.h"
#include "penstock/train/hook.h"
#include "penstock/train/lr_schedule.h"
#include "penstock/train/skipped_steps.h"
#include "penstock/train/step_agreement.h"

namespace penstock {

struct TrainerOptions {
  std::int64_t epochs = 1;
  std::optional<std::int64_t> max_steps = {};          // limit over all epochs; unset: no limit
  std::int64_t evaluate_every = 1;                     // epochs; 0: never; otherwise also after the last epoch
  std::optional<LearningRatePlan> learning_rate = {};  // unset: the optimiser keeps its own learning rate
  std::optional<std::vector<Metric>> metrics = {};     // metrics of tests beside the loss; unset: right answers
  OnNan on_nan = OnNan::stop;                          // what to do if a loss is infinite or not a number
  /// True: the loss of a step is read after the next step was submitted, so that ranks do not wait for it. False: it is
  /// read before the next step is submitted, for hooks that control each step by the loss of the previous one; then the
  /// ranks synchronise at every step.
  bool look_ahead = true;
  bool measure = false;  // fill StepReport's bubble, peak_activations and peak_resident_bytes
  /// Asked before every step, and between the steps of a test, on every process (several processes follow the first
  /// that answers within a quarter of a second). An answer ends fit() after the submitted steps, without the epoch's
  /// report and test, and with a checkpoint if a CheckpointHook was added. A test that it interrupts is run again, as
  /// a whole, by the training that resumes from this checkpoint. Null: never.
  std::function<std::optional<StopRequest>()> stop_when = nullptr;
};

/// Runs epochs and tests on a Pipeline and calls hooks. Under MPI every process runs its own Trainer over the same
/// batches. Not thread-safe.
class Trainer {
 public:
  /// `pipeline` must outlive the Trainer and, for fit(), must have its optimiser. Throws ConfigError for invalid
  /// options.
  Trainer(Pipeline& pipeline, const TrainerOptions& options = {});

  /// Takes ownership of `hook` and sorts it after the hooks of equal priority. The reference is valid as long as the
  /// Trainer lives.
  template <class H>
  H& add_hook(std::unique_ptr<H> hook) {
    H& added = *hook;
    insert(std::move(hook));
    return added;
  }

  /// Trains on `train` and evaluates on `test` unless it is null. Collective. Throws InvalidLoss if
  /// TrainerOptions::on_nan stops the training, which leaves the pipeline usable; ConfigError for batches with fewer
  /// samples than micro-batches; and passes on exceptions of hooks and loaders.
  void fit(Loader& train, Loader* test = nullptr);
  void fit(Loader& train, Loader& test) { fit(train, &test); }

  /// Continues a training: loads the newest usable checkpoint of a folder, or the one whose directory `path` is
  /// (Pipeline::load). The next fit() begins at the step of that checkpoint, in the middle of an epoch too, and
  /// calls the hooks' load(). Its steps are, to the last bit, those of a training that was never interrupted if the
  /// settings on which bits depend (BitSettings) are the same, which may otherwise change: then a warning names what
  /// differs. Returns false, and changes nothing, if there is no usable checkpoint. Collective. Throws as
  /// Pipeline::load().
  bool resume(const std::string& path);
  /// Why the last fit() ended before its goal (TrainerOptions::stop_when); unset if it did not.
  const std::optional<StopRequest>& interrupted() const { return interrupted_; }

  /// One forward pass over `test` through the pipeline. Collective. The results are exact for uneven batches,
  /// micro-batches and replicas, and equal on every process.
  EvaluationReport evaluate(Loader& test);

  /// The network's outputs for all samples of `data`, in the loader's order: one tensor per output, the rows of all
  /// batches concatenated. Non-empty on the processes that hold the last stage, or on all with InferOptions::broadcast.
  /// Collective; every process reads whole batches, so do not apply for_this_process() to `data` (ConfigError). Ignores
  /// targets and calls no hook.
  Tensors predict(Loader& data, const InferOptions& options = {});

  /// For hooks: ends fit() after the steps that are submitted (at most one more report), the epoch's report and its
  /// test, as if the epoch were the last. Call it on every process, at the same step.
  void stop(const std::string& reason) { stopped_ = reason; }
  /// The reason given to stop() during the last fit(); unset if it was not called.
  const std::optional<std::string>& stopped() const { return stopped_; }

  /// For hooks: adds `metric` to the metrics of tests, unless there is one of the same name.
  void count(const Metric& metric);
  /// Adds the metric `correct`, along the class dimension of the pipeline's loss.
  void track_accuracy();

  Pipeline& pipeline() const { return pipeline_; }
  const TrainerOptions& options() const { return options_; }

 private:
  struct Pending;
  using RateAt = std::function<double(const TrainingPosition&)>;
  struct Limits {
    std::int64_t per_epoch = 0;
    std::int64_t steps = 0;   // over all epochs
    std::int64_t epochs = 0;  // that have a step, the last perhaps not all of them
  };
  void insert(std::unique_ptr<Hook> hook);
  void begin_checkpoints(const Loader& train);
  /// Takes the position, and the states of hooks, from a checkpoint that the pipeline has loaded.
  void continue_from(const Manifest& from, const Loader& train);
  void write_last_checkpoint();
  void return_to_checkpoint(const InvalidLoss& refusal, const Loader& train);
  /// To be called before a step is submitted: writes a checkpoint that is due, between two updates. Reports `pending`
  /// first. Returns false if the training is to end.
  bool prepare_step(const TrainingPosition& next, std::optional<Pending>& pending);
  /// The end of the training that this process requests, if it does.
  std::optional<StopRequest> stop_request() const { return options_.stop_when ? options_.stop_when() : std::nullopt; }
  /// Of the training that goes on from progress_.
  Limits limits_of(std::int64_t steps_per_epoch) const;
  RateAt learning_rate(const Limits& limits) const;
  void run_epochs(Loader& train, Loader* test);
  /// Runs the next epoch, up to its step number `steps`.
  void run_epoch(Loader& train, std::int64_t steps, const RateAt& rate);
  /// Runs the test that is due after the last step, then moves progress_ to the next epoch if this one is complete.
  void end_epoch(const Limits& limits, Loader* test);
  /// Whether all processes end the test after its last step so far, because the training is to end.
  bool interrupts_test();
  void require_full(const StepReport& first) const;
  void report(const Pending& pending);
  /// Moves progress_ to the position after a step of its epoch.
  void advance(std::int64_t step);
  /// Returns whether the step was valid. Skips an invalid step or throws, as TrainerOptions::on_nan says.
  bool is_valid(const Pending& pending);
  /// Returns none if the test was interrupted.
  std::optional<EvaluationReport> evaluate_after(std::int64_t epoch, Loader& test, bool may_end_early);

  Pipeline& pipeline_;
  TrainerOptions options_;
  HookList hooks_;
  std::vector<Metric> metrics_;
  std::optional<std::string> stopped_;
  std::optional<StopRequest> interrupted_;
  struct Resumed {
    Manifest from;
    std::string folder;
  };
  std::optional<Resumed> resumed_;          // the checkpoint from which the next fit() continues
  TrainingProgress progress_;               // after the last step that was reported
  CheckpointHook* checkpoints_ = nullptr;   // is asked before every step whether to save
  std::optional<StepAgreement> agreement_;  // if processes have something to agree about
  StepRequests requested_;                  // by all processes, and not fulfilled yet
  std::int64_t completed_ = 0;              // training steps submitted in this fit()
  SkippedSteps skipped_;                    // the same
  std::int64_t last_report_ns_ = 0;
};

/// Returns `options` with `share` and `inputs` set for this process of `pipeline`: its replica's share if there are
/// several processes, and no inputs if no rank of this process reads them.
LoaderOptions for_this_process(const Pipeline& pipeline, LoaderOptions options);

}  // namespace penstock
