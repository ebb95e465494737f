// The loop around a pipeline: epochs, batches, evaluation, and hooks that are told about them.
#pragma once

#include <chrono>
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

/// The learning rate over a whole training: learning_rate_schedule() with the total that the training has.
struct LearningRatePlan {
  std::string schedule = "constant";
  double rate = 0.01;
  std::int64_t warmup = 0;  // epochs or steps
  bool by_epoch = true;     // changes from epoch to epoch; otherwise from step to step
};

struct TrainerOptions {
  std::int64_t epochs = 1;
  std::optional<std::int64_t> max_steps = {};          // over all epochs; none: no limit
  std::int64_t evaluate_every = 1;                     // epochs; 0: never. The last epoch is always evaluated otherwise
  std::optional<LearningRatePlan> learning_rate = {};  // none: the optimiser's own
  std::optional<std::vector<Metric>> metrics = {};     // what tests count next to the loss; none: right answers
  bool stop_at_invalid_loss = true;  // false: a loss that is not a number or infinite is reported like any other
  /// Reads each loss when the next step is under way. False: before the next step is submitted, for hooks that steer
  /// each step by the loss of the one before it; the ranks wait for each other at every step then.
  bool look_ahead = true;
  bool measure = false;  // fills the bubble and memory of StepReport
};

/// Under MPI every process runs its own Trainer over the same batches. Not thread-safe.
class Trainer {
 public:
  /// `pipeline` must have its optimiser, where it trains, and outlive the Trainer.
  Trainer(Pipeline& pipeline, const TrainerOptions& options = {});

  /// Takes `hook` in, behind those of its priority. The reference holds as long as the Trainer does.
  template <class H>
  H& add_hook(std::unique_ptr<H> hook) {
    H& added = *hook;
    insert(std::move(hook));
    return added;
  }

  /// Trains on `train`, evaluating on `test` if there is one. Each step's loss is read one step late, so that the next
  /// step is under way. Throws Failure, after the hooks have seen it, when a loss is not a number or infinite.
  void fit(Loader& train, Loader* test = nullptr);
  void fit(Loader& train, Loader& test) { fit(train, &test); }

  /// One pass over `test`, forward only, through the pipeline. Exact over uneven batches, micro-batches and replicas,
  /// and the same on every process.
  EvaluationReport evaluate(Loader& test);

  /// The network's outputs for all of `data`, in its order, through the pipeline: each output's rows of all batches
  /// below each other. On the processes that hold the last stage or, with broadcast, on all; empty elsewhere. Every
  /// process reads whole batches: `data` is not for_this_process(). The targets are not looked at, and no hook is told.
  Tensors predict(Loader& data, const InferOptions& options = {});

  /// For hooks: no further step is submitted, and fit() returns after the epoch's report and test as if it had been the
  /// last one. At most one step is under way then. To be asked for on every process, at the same moment.
  void stop(const std::string& reason) { stopped_ = reason; }
  /// Why the last fit() was stopped; none where it was not.
  const std::optional<std::string>& stopped() const { return stopped_; }

  /// For hooks: counts `metric` in tests too, unless one of its name is counted already.
  void count(const Metric& metric);
  /// The same for right answers, by the classes of the pipeline's loss.
  void count_right_answers();

  Pipeline& pipeline() const { return pipeline_; }
  const TrainerOptions& options() const { return options_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending;
  struct Epoch;
  struct Limits {
    std::int64_t per_epoch = 0;
    std::int64_t steps = 0;  // over all epochs
  };
  void insert(std::unique_ptr<Hook> hook);
  std::function<double(const TrainingPosition&)> learning_rate(const Limits& limits) const;
  void run_epochs(Loader& train, Loader* test);
  /// Whether a hook looks at what this process has of the outputs.
  bool keeps_outputs(bool of_training) const;
  template <class Report>
  void report_outputs(const StepResult& result, const Report& report,
                      void (Hook::*told)(const Report&, const BatchOutputs&));
  void run_epoch(Loader& train, Epoch& epoch);
  void require_full(const StepReport& first) const;
  void report(const Pending& pending, Epoch& epoch);
  EvaluationReport evaluate_after(std::int64_t epoch, Loader& test);

  Pipeline& pipeline_;
  TrainerOptions options_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  std::vector<Metric> metrics_;
  std::optional<std::string> stopped_;
  std::int64_t completed_ = 0;  // training steps that were submitted in this fit()
  Clock::time_point last_report_;
};

/// What a loader needs to read in this process for `pipeline`: its replica's share where there are several processes,
/// nothing where no rank of this process looks at inputs. Fills `share` and `inputs` of `options`.
LoaderOptions for_this_process(const Pipeline& pipeline, LoaderOptions options);

}  // namespace penstock
