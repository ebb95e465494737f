// The training loop around a pipeline: epochs, batches, evaluation and hooks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/data/data.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/train/hook.h"
#include "penstock/train/lr_schedule.h"

namespace penstock {

/// The learning rate over a whole training: the arguments of learning_rate_schedule() except the total.
struct LearningRatePlan {
  std::string schedule = "constant";
  double rate = 0.01;
  std::int64_t warmup = 0;  // epochs if by_epoch, else steps
  bool by_epoch = true;     // true: the rate changes once per epoch; false: at every step
};

struct TrainerOptions {
  std::int64_t epochs = 1;
  std::optional<std::int64_t> max_steps = {};          // limit over all epochs; unset: no limit
  std::int64_t evaluate_every = 1;                     // epochs; 0: never; otherwise also after the last epoch
  std::optional<LearningRatePlan> learning_rate = {};  // unset: the optimiser keeps its own learning rate
  std::optional<std::vector<Metric>> metrics = {};     // metrics of tests beside the loss; unset: right answers
  bool stop_at_invalid_loss = true;                    // throw Failure if a loss is infinite or not a number
  /// True: the loss of a step is read after the next step was submitted, so that ranks do not wait for it. False: it is
  /// read before the next step is submitted, for hooks that control each step by the loss of the previous one; then the
  /// ranks synchronise at every step.
  bool look_ahead = true;
  bool measure = false;  // fill StepReport's bubble, peak_activations and peak_resident_bytes
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

  /// Trains on `train` and evaluates on `test` unless it is null. Collective. Throws Failure, after the step's hooks,
  /// if a loss is infinite or not a number; ConfigError for batches with fewer samples than micro-batches; and passes
  /// on exceptions of hooks and loaders.
  void fit(Loader& train, Loader* test = nullptr);
  void fit(Loader& train, Loader& test) { fit(train, &test); }

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
  void count_right_answers();

  Pipeline& pipeline() const { return pipeline_; }
  const TrainerOptions& options() const { return options_; }

 private:
  struct Pending;
  struct Epoch;
  struct Limits {
    std::int64_t per_epoch = 0;
    std::int64_t steps = 0;  // over all epochs
  };
  void insert(std::unique_ptr<Hook> hook);
  std::function<double(const TrainingPosition&)> learning_rate(const Limits& limits) const;
  void run_epochs(Loader& train, Loader* test);
  /// Whether a hook wants the outputs of training steps or tests.
  bool keeps_outputs(bool of_training) const;
  template <class Report>
  void report_outputs(const StepResult& result, const Report& report,
                      void (Hook::*callback)(const Report&, const BatchOutputs&));
  void run_epoch(Loader& train, Epoch& epoch);
  void require_full(const StepReport& first) const;
  void report(const Pending& pending, Epoch& epoch);
  EvaluationReport evaluate_after(std::int64_t epoch, Loader& test);

  Pipeline& pipeline_;
  TrainerOptions options_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  std::vector<Metric> metrics_;
  std::optional<std::string> stopped_;
  std::int64_t completed_ = 0;  // training steps submitted in this fit()
  std::int64_t last_report_ns_ = 0;
};

/// Returns `options` with `share` and `inputs` set for this process of `pipeline`: its replica's share if there are
/// several processes, and no inputs if no rank of this process reads them.
LoaderOptions for_this_process(const Pipeline& pipeline, LoaderOptions options);

}  // namespace penstock
