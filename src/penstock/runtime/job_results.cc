#include "penstock/runtime/job_results.h"

#include <utility>

#include "penstock/layers/autocast.h"
#include "penstock/model/loss_checks.h"

namespace penstock {

void JobResults::begin(const StepJob& job) {
  job_ = &job;
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
  Tensors in_full = outputs;
  for (torch::Tensor& output : in_full)
    if (setting_.precision != Precision::fp32 && output.defined() && is_reduced(output.scalar_type()))
      output = output.to(torch::kFloat32);
  torch::Tensor sum = require_scalar(setting_.loss.name, setting_.loss(in_full, targets));
  const double factor = factors_.reported[micro_batch.index()];
  if (factor > 0) {
    numbers_.loss += factor * sum.item<double>();
    numbers_.loss_sum += sum.item<double>();
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
    channel_.send(job_->step, numbers_);
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

void JobResults::collect() const {
  if (job_->inference || !placement_.context().collects) return;
  job_->state->set_numbers(channel_.receive(job_->step));
}

}  // namespace penstock
