// Makes the jobs of a pipeline's ranks from batches.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "penstock/model/batch_tensors.h"
#include "penstock/pipeline/inferences.h"
#include "penstock/rank/local_runners.h"
#include "penstock/rank/schedule_cache.h"
#include "penstock/rank/step_job.h"

namespace penstock {

/// The parts of a pipeline that its jobs depend on; all of them outlive the factory.
struct JobFactoryParts {
  const PipelineOptions& options;
  const Loss& loss;
  const BatchAxesOf& axes;
  ScheduleCache& schedules;
  const LocalRunners& runners;
};

/// Numbers the jobs, and gives them their schedules. Used by the program's thread.
class JobFactory {
 public:
  explicit JobFactory(const JobFactoryParts& parts) : parts_(parts) {}

  /// A training step or its forward_backward. Throws ConfigError for a batch that does not fit.
  std::shared_ptr<StepJob> training(const BatchTensors& inputs, const BatchTensors& targets, StepPart part);
  /// Counts a training step that is not run, so that the random numbers of later steps are those behind it.
  void skip_step() { ++training_steps_; }
  /// `reduce` or `update` of the step that `begun` began.
  std::shared_ptr<StepJob> later_part(const StepJob& begun, StepPart part, double gradient_divisor);
  std::shared_ptr<StepJob> evaluation(const BatchTensors& inputs, const BatchTensors& targets,
                                      const std::vector<Metric>& metrics);
  std::shared_ptr<StepJob> inference(Inferences& inferences, const Tensors& inputs, const InferOptions& options);

  /// The total weight of a batch's samples under Reduction::mean; 0 under Reduction::sum.
  double weight_of(const StepJob& job) const;
  /// The rows of a batch of `samples` that this process may pass alone: its replica's share; all rows under threads.
  RowRange share_rows(std::int64_t samples) const;
  /// Sets the learning rate of the jobs that are made from now on; throws ConfigError for a negative or infinite one.
  void set_learning_rate(double rate);
  std::optional<double> learning_rate() const { return learning_rate_; }

  /// Training steps that were submitted. Random numbers depend on it.
  std::uint64_t training_steps() const { return training_steps_; }
  /// The next training step comes after `steps` others, and has this learning rate.
  void continue_after(std::uint64_t steps, std::optional<double> learning_rate) {
    training_steps_ = steps;
    learning_rate_ = learning_rate;
  }

 private:
  /// Everything but the schedules and what only some jobs have.
  StepJob begin(const BatchTensors& inputs, const BatchTensors& targets, const std::vector<Metric>& metrics);
  const World& world() const { return parts_.runners.world(); }
  /// Whether other processes hold ranks of the world, so that this one may pass only its replica's share of the inputs.
  bool is_spread() const { return parts_.runners.count() < world().size(); }
  BatchLayout layout_of(std::int64_t samples) const;

  JobFactoryParts parts_;
  std::uint64_t next_step_ = 0;
  std::uint64_t training_steps_ = 0;
  std::optional<double> learning_rate_;
  bool is_first_batch_ = true;
};

}  // namespace penstock
