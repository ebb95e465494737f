#include "penstock/pipeline/job_factory.h"

#include <cmath>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/transport/device_hand_over.h"

namespace penstock {

BatchLayout JobFactory::layout_of(std::int64_t samples) const {
  return BatchLayout(
      {.samples = samples, .replicas = world().replicas(), .micro_batches = parts_.options.micro_batches});
}

RowRange JobFactory::share_rows(std::int64_t samples) const {
  if (!is_spread()) return {0, samples};
  return layout_of(samples).share(world().context(world().local_ranks().front()).replica());
}

StepJob JobFactory::begin(const BatchTensors& inputs, const BatchTensors& targets, const std::vector<Metric>& metrics) {
  const std::int64_t samples = parts_.axes.samples(inputs, targets);
  require_targets(parts_.loss, metrics, targets);
  std::int64_t first_row = 0;
  if (parts_.runners.read_inputs())
    first_row = first_row_of(parts_.axes.inputs, inputs.list(),
                             {parts_.runners.staged().graph.inputs, samples, share_rows(samples), is_spread()});
  Tensors tensors = inputs.list();
  for (const torch::Tensor& target : targets.list()) tensors.push_back(target);
  return {.step = next_step_++,
          .training_step = training_steps_,
          .layout = layout_of(samples),
          .inputs = inputs.list(),
          .first_input_row = first_row,
          .targets = targets.list(),
          .ready = DeviceEvents::of(tensors),
          .metrics = metrics,
          .learning_rate = learning_rate_};
}

std::shared_ptr<StepJob> JobFactory::training(const BatchTensors& inputs, const BatchTensors& targets, StepPart part) {
  auto job = std::make_shared<StepJob>(begin(inputs, targets, {}));
  job->part = part;
  ++training_steps_;
  if (std::exchange(is_first_batch_, false) && world().is_main()) warn_of_few_samples(job->layout);
  for (int r = 0; r < world().replicas(); ++r)
    job->schedules.push_back(parts_.schedules.for_training(job->layout.micro_batches(Replica(r)), part));
  return job;
}

std::shared_ptr<StepJob> JobFactory::later_part(const StepJob& begun, StepPart part, double gradient_divisor) {
  auto job = std::make_shared<StepJob>(begun);
  job->part = part;
  job->gradient_divisor = gradient_divisor;
  job->learning_rate = learning_rate_;
  for (int r = 0; r < world().replicas(); ++r)
    job->schedules[static_cast<std::size_t>(r)] =
        parts_.schedules.for_training(job->layout.micro_batches(Replica(r)), part);
  return job;
}

std::shared_ptr<StepJob> JobFactory::evaluation(const BatchTensors& inputs, const BatchTensors& targets,
                                                const std::vector<Metric>& metrics) {
  auto job = std::make_shared<StepJob>(begin(inputs, targets, metrics));
  job->training = false;
  for (int r = 0; r < world().replicas(); ++r)
    job->schedules.push_back(parts_.schedules.for_forward(job->layout.micro_batches(Replica(r))));
  return job;
}

std::shared_ptr<StepJob> JobFactory::inference(Inferences& inferences, const Tensors& inputs,
                                               const InferOptions& options) {
  auto job = std::make_shared<StepJob>(inferences.make_job(next_step_, inputs, options));
  ++next_step_;
  for (int r = 0; r < world().replicas(); ++r)
    job->schedules.push_back(parts_.schedules.for_forward(inferences.micro_batches(*job, Replica(r))));
  return job;
}

double JobFactory::weight_of(const StepJob& job) const {
  if (parts_.options.loss_reduction.reduction == Reduction::sum) return 0;
  return loss_factors(parts_.loss, {.reduction = parts_.options.loss_reduction.reduction},
                      {job.targets, parts_.axes.targets}, job.layout, Replica(0), world().replicas())
      .total_weight;
}

void JobFactory::set_learning_rate(double rate) {
  require<ConfigError>(std::isfinite(rate) && rate >= 0, "learning rate is ", rate,
                       ": give a finite number, 0 or more");
  learning_rate_ = rate;
}

}  // namespace penstock
