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
#include "penstock/train/hooks.h"
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
  std::optional<std::int64_t> max_steps = {};  // over all epochs; none: no limit
  std::int64_t evaluate_every = 1;        // epochs; 0: never. The last epoch is always evaluated otherwise
  std::optional<LearningRatePlan> learning_rate = {};  // none: the optimiser's own
};

/// Under MPI every process runs its own Trainer over the same batches. Not thread-safe.
class Trainer {
 public:
  /// `pipeline` must have its optimiser and outlive the Trainer.
  Trainer(Pipeline& pipeline, const TrainerOptions& options);

  void add_hook(std::unique_ptr<Hook> hook) { hooks_.push_back(std::move(hook)); }

  /// Trains on `train`, evaluating on `test` if there is one. Each step's loss is read one step late, so that the next
  /// step is under way. Throws Failure, after the hooks have seen it, when a loss is not a number or infinite.
  void fit(Loader& train, Loader* test = nullptr);

  /// One pass over `test`, forward only, through the pipeline. Exact over uneven batches and replicas.
  EvaluationReport evaluate(Loader& test);

 private:
  using Clock = std::chrono::steady_clock;
  struct Pending;
  struct Moment {
    std::int64_t epoch = 0;  // before the step
    std::int64_t step = 0;   // steps before it, over all epochs
  };
  std::function<double(Moment)> learning_rate(std::int64_t per_epoch, std::int64_t steps) const;
  void run_epochs(Loader& train, Loader* test);
  void report(const Pending& pending);

  Pipeline& pipeline_;
  TrainerOptions options_;
  std::vector<std::unique_ptr<Hook>> hooks_;
  Clock::time_point last_report_;
};

/// What a loader needs to read in this process for `pipeline`: its replica's share where there are several processes,
/// nothing where no rank of this process looks at inputs. Fills `share` and `inputs` of `options`.
LoaderOptions for_this_process(const Pipeline& pipeline, LoaderOptions options);

}  // namespace penstock
