// The jobs of a pipeline's ranks: made from batches, in the order that the parts of a step and inferences allow.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/model/batch_tensors.h"
#include "penstock/pipeline/infer.h"
#include "penstock/pipeline/schedule_cache.h"
#include "penstock/rank/job.h"
#include "penstock/rank/rank_runner.h"
#include "penstock/rank/result.h"

namespace penstock {

/// The order of the parts of a step between two updates: forward_backward, once or several times to accumulate
/// gradients, reduce_gradients, step. Used by the program's thread.
class StepParts {
 public:
  /// `calls_per_update`: PipelineOptions::update_every.
  explicit StepParts(int calls_per_update = 1) : calls_per_update_(calls_per_update) {}

  /// Whether a train_step only accumulates gradients, unless it is the last before an update.
  bool accumulates() const { return calls_per_update_ > 1; }
  /// Whether enough calls were accumulated for an update.
  bool is_update_due() const { return calls_ >= calls_per_update_; }

  /// Whether gradients await their update.
  bool has_gradients() const { return next_ != rank::StepPart::whole; }
  /// Throws ConfigError, naming the call `what`, while gradients await their update.
  void require_whole_steps(const char* what) const;
  /// Throws ConfigError if no forward_backward may come next.
  void require_forward_backward() const;
  /// Throws ConfigError if `part`, `reduce` or `update`, may not come next. An update may also come if the
  /// gradients are not reduced yet.
  void require_later(rank::StepPart part) const;
  bool needs_reduction() const { return next_ == rank::StepPart::reduce; }

  /// Counts one more forward_backward and sets the shares of `job`. `weight`: the total weight of its samples if the
  /// loss is a mean over all calls; 0 if it is a sum.
  void begin(const std::shared_ptr<rank::StepJob>& job, double weight);
  /// Ends `reduce` or `update`.
  void end(rank::StepPart part);
  /// The newest forward_backward whose gradients await their update.
  std::shared_ptr<const rank::StepJob> begun() const { return begun_; }

 private:
  rank::StepPart next_ = rank::StepPart::whole;
  std::shared_ptr<const rank::StepJob> begun_;
  int calls_per_update_;
  int calls_ = 0;      // of forward_backward, since the last update
  double weight_ = 0;  // total weight of their samples
};

/// The submitted inferences and open sessions of one pipeline. Used by the program's thread.
class Inferences {
 public:
  explicit Inferences(std::shared_ptr<rank::LocalRunners> runners) : runners_(std::move(runners)) {}

  std::shared_ptr<rank::SessionState> open_session();
  /// Submits a job. First waits for the oldest one if too many are in flight.
  InferResult start(const std::shared_ptr<rank::StepJob>& job);
  /// Waits for all jobs. Throws the error of a failed one, except for a StepFailure that was reported before.
  void finish();
  /// The same, but never throws, and after a failure of the world does not wait for a rank that hangs.
  void settle() noexcept;

 private:
  void finish_oldest();

  std::shared_ptr<rank::LocalRunners> runners_;
  /// The jobs since the last finish(), with the state of the outputs where this process has to receive them.
  std::deque<std::pair<std::shared_ptr<rank::StepState>, std::shared_ptr<rank::InferState>>> under_way_;
  std::vector<std::weak_ptr<rank::SessionState>> sessions_;
  std::uint64_t next_session_ = 0;
};

/// The parts of a pipeline that its jobs depend on; all of them outlive the factory.
struct JobFactoryParts {
  const PipelineOptions& options;
  const Loss& loss;
  const rank::BatchAxesOf& axes;
  ScheduleCache& schedules;
  rank::LocalRunners& runners;
};

/// Numbers the jobs, and gives them their schedules. Used by the program's thread.
class JobFactory {
 public:
  explicit JobFactory(const JobFactoryParts& parts) : parts_(parts) {}

  /// A training step or its forward_backward. Throws ConfigError for a batch that does not fit.
  std::shared_ptr<rank::StepJob> training(const BatchTensors& inputs, const BatchTensors& targets, rank::StepPart part);
  /// Counts a training step that is not run, so that the random numbers of later steps are those behind it.
  void skip_step() { ++training_steps_; }
  /// `reduce` or `update` of the step that `begun` began.
  std::shared_ptr<rank::StepJob> later_part(const rank::StepJob& begun, rank::StepPart part, double gradient_divisor);
  std::shared_ptr<rank::StepJob> evaluation(const BatchTensors& inputs, const BatchTensors& targets,
                                            const std::vector<Metric>& metrics);
  /// Throws ConfigError for inputs or options that do not fit.
  std::shared_ptr<rank::StepJob> inference(const Tensors& inputs, const InferOptions& options);

  /// The total weight of a batch's samples under Reduction::mean; 0 under Reduction::sum.
  double weight_of(const rank::StepJob& job) const;
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
  rank::StepJob begin(const BatchTensors& inputs, const BatchTensors& targets, const std::vector<Metric>& metrics);
  const World& world() const { return parts_.runners.world(); }
  /// Whether other processes hold ranks of the world, so that this one may pass only its replica's share of the inputs.
  bool is_spread() const { return parts_.runners.count() < world().size(); }
  rank::BatchLayout layout_of(std::int64_t samples) const;
  /// The number of samples of the network's inputs, of which there must be as many as it takes.
  std::int64_t samples_of(const Tensors& inputs) const;
  void require_targets(const BatchTensors& targets, const std::vector<Metric>& metrics) const;
  void join_session(rank::SessionState& session, std::int64_t rows, const InferOptions& options) const;
  rank::InferState::Expected expected_outputs(std::uint64_t step, const InferOptions& options) const;
  /// Gives the job its schedules.
  std::shared_ptr<rank::StepJob> scheduled(rank::StepJob job) const;

  JobFactoryParts parts_;
  std::uint64_t next_step_ = 0;
  std::uint64_t training_steps_ = 0;
  std::optional<double> learning_rate_;
  bool is_first_batch_ = true;
};

}  // namespace penstock
