#include "penstock/runtime/job_results.h"

#include <cmath>
#include <utility>

#include "penstock/layers/autocast.h"
#include "penstock/model/loss_checks.h"
#include "penstock/runtime/invalid_loss.h"

namespace penstock {

NonFiniteLoss::NonFiniteLoss(MicroBatch micro_batch, double loss)
    : Failure("the loss is " + text_of_loss(loss)), micro_batch_(micro_batch), loss_(loss) {}

Tensors in_full_precision(const RankSetting& setting, const Tensors& outputs) {
  Tensors in_full = outputs;
  for (torch::Tensor& output : in_full)
    if (setting.precision != Precision::fp32 && output.defined() && is_reduced(output.scalar_type()))
      output = output.to(torch::kFloat32);
  return in_full;
}

void JobResults::begin(const StepJob& job) {
  job_ = &job;
  is_collected_ = false;
  if (!placement_.is_local(placement_.last_stage())) return;
  numbers_ = {};
  numbers_.metrics.assign(job.metrics.size(), 0);
  const Replica own = placement_.replica();
  forwards_left_ = job.schedule_of(own).schedule.micro_batches;
  if (!job.inference) {
    factors_ = loss_factors(setting_.loss, setting_.reductions, {job.targets, setting_.axes.targets}, job.layout, own,
                            placement_.context().replicas);
    numbers_.weight = factors_.total_weight;
  }
  if (forwards_left_ == 0) send();
}

void JobResults::clear() {
  job_ = nullptr;
  outputs_.clear();
}

torch::Tensor JobResults::add(const Tensors& outputs, BatchRows& rows, MicroBatch micro_batch) {
  if (job_->inference) {
    outputs_.push_back(outputs);
    return {};
  }
  const Tensors targets = rows.targets(micro_batch);
  const AutocastGuard in_fp32({.enabled = false, .device = setting_.device.type()});
  const Tensors in_full = in_full_precision(setting_, outputs);
  torch::Tensor sum = require_scalar(setting_.loss.name, setting_.loss(in_full, targets));
  const double factor = factors_.reported[micro_batch.index()];
  if (factor > 0) {
    const auto value = sum.item<double>();
    if (job_->refuses_invalid_loss && !std::isfinite(value)) throw NonFiniteLoss(micro_batch, value);
    numbers_.loss += factor * value;
    numbers_.loss_sum += value;
  }
  const torch::NoGradGuard no_grad;
  if (job_->keeps_outputs) outputs_.push_back(in_full);
  for (std::size_t i = 0; i < numbers_.metrics.size(); ++i)
    numbers_.metrics[i] += job_->metrics[i].count(in_full, targets);
  return sum;
}

void JobResults::end_forward() {
  if (--forwards_left_ == 0) send();
}

void JobResults::send() {
  if (job_->inference) {
    channel_.send_outputs(job_->step, *job_->inference, setting_.axes.outputs.join(std::exchange(outputs_, {})));
  } else {
    keep_outputs();
    channel_.send(job_->step, numbers_,
                  job_->refuses_invalid_loss ? ResultChannel::To::ranks : ResultChannel::To::processes);
  }
}

// For StepResult::outputs(), in this process alone.
void JobResults::keep_outputs() {
  if (outputs_.empty()) return;
  const Replica own = placement_.replica();
  const RowRange share = job_->layout.share(own);
  const BatchAxesOf& axes = setting_.axes;
  // Copies, because the caller may overwrite the batch once the loss is available.
  BatchOutputs kept{axes.outputs.join(outputs_), axes.targets.join({axes.targets.rows(job_->targets, share)}), share};
  job_->state->add_outputs(own, std::move(kept), axes);
  outputs_.clear();
}

void JobResults::collect() {
  const bool collects = placement_.context().collects;
  if (job_->inference || (!collects && !job_->refuses_invalid_loss) || std::exchange(is_collected_, true)) return;
  StepNumbers numbers = channel_.receive(job_->step);
  if (collects) job_->state->set_numbers(std::move(numbers));
}

}  // namespace penstock
