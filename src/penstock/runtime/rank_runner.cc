#include "penstock/runtime/rank_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/layers/autocast.h"
#include "penstock/runtime/compare_batches.h"
#include "penstock/runtime/position.h"

namespace penstock {

RankRunner::RankRunner(const StagedGraph& staged, const Schedule& training, const RankSetting& setting)
    : staged_(staged),
      setting_(setting),
      placement_(setting.pipeline, setting.context, training.rank_of_stage),
      micro_batches_(training.micro_batches),
      rows_(placement_, setting_.axes, setting.device),
      messages_(placement_, staged.graph, setting.boundary_shape),
      results_(placement_, setting_),
      scaler_(setting.precision, setting.loss_scaling) {
  if (setting.count_bytes) bytes_ = std::make_unique<HeldBytes>();
  for (const StagePart& part : staged_.parts)
    if (placement_.is_local(part.id))
      stages_.push_back(
          std::make_unique<Stage>(staged_, part, StageSetting{setting.seed, setting.device, setting.kernels}));
}

std::vector<std::pair<int, bool>> RankRunner::trainable_nodes() const {
  std::vector<std::pair<int, bool>> nodes;
  for (const auto& stage : stages_)
    for (int n : stage->part().nodes) nodes.emplace_back(n, stage->trains(n));
  return nodes;
}

void RankRunner::make_optimizers(const OptimizerFactory& factory) {
  make_optimizer_ = factory;
  optimizers_.clear();
  optimized_.clear();
  add_optimizers();
}

// Makes optimisers for parameters that have none. Every stage that uses a tied parameter steps its own copy.
void RankRunner::add_optimizers() {
  std::set<std::string> known = optimized_;
  for (const auto& stage : stages_) {
    std::vector<NamedParameter> parameters;
    for (const TrainedParameter& parameter : stage->gradients().parameters()) {
      if (known.contains(parameter.name)) continue;
      parameters.push_back({parameter.name, parameter.value});
      optimized_.insert(parameter.name);
    }
    if (!parameters.empty()) optimizers_.emplace(stage->id(), make_optimizer_(parameters));
  }
}

void RankRunner::set_trainable(const std::string& name, bool trains) {
  for (const auto& each : stages_) each->set_trainable(name, trains);
  gradients_.clear();
  if (make_optimizer_) add_optimizers();
}

void RankRunner::run(const StepJob& job) {
  std::exception_ptr failure = permanent_error_;
  try {
    if (!permanent_error_) run_or_throw(job);
  } catch (const BatchesDiffer& error) {
    failure = permanent_error_ = std::make_exception_ptr(ConfigError(error.what()));
  } catch (...) {
    failure = failed(std::current_exception(), say(to_string(current_), " of step ", job.step));
  }
  if (failure && job.inference) job.inference->state->fail(failure);
  job_ = nullptr;
  activations_.clear();
  messages_.clear();
  rows_.clear();
  results_.clear();
  if (failure && bytes_) bytes_->clear();
  // Gradients are kept for the next part of the step.
  const bool keeps_gradients = job.part == StepPart::forward_backward || job.part == StepPart::reduce;
  if (failure || (job.training && !keeps_gradients)) gradients_.clear();
  job.state->rank_done(failure);
}

void RankRunner::run_or_throw(const StepJob& job) {
  const CompiledSchedule& plan = *job.plans[placement_.replica().index()];
  const std::size_t rank = placement_.rank().index();
  job_ = &job;
  if (job.part == StepPart::reduce || job.part == StepPart::update) return run_later_part(plan);
  rows_.begin(job);
  if (job.training && !context().is_alone && is_compared(job.training_step, setting_.compare_batches))
    rows_.compare(parts());
  messages_.begin_step(job.step);
  forwards_left_ = stages_.size() * static_cast<std::size_t>(plan.schedule.micro_batches);
  gradient_norm_.reset();
  share_buffers();
  for (const auto& stage : stages_) {
    stage->set_training(job.training);
    if (job.training) continue_gradients(*stage);
  }
  if (job.learning_rate)
    for (auto& [stage, optimizer] : optimizers_) optimizer->set_learning_rate(*job.learning_rate);
  activations_.set_bound(plan.peak_activations[rank]);
  predicted_activations_ = std::max(predicted_activations_, plan.peak_activations[rank]);

  const torch::AutoGradMode with_graph(job.training);
  results_.begin(job);
  // Traces contain only steps of the full schedule, because others are not comparable with it.
  Recorder& recorder = job.training && plan.schedule.micro_batches == micro_batches_ ? recorder_ : untraced_;
  recorder.begin_step(job.step);
  execute(plan.programs[rank], *this, recorder);
  recorder.end_step();
  if (job.training && job.part == StepPart::whole) end_update();
  if (const BusyTime& busy = recorder.newest_busy(); job.training)
    job.state->add_use({busy.begin_ns, busy.end_ns, busy.busy_ns, activations_.peak()});
  if (HeldBytes* bytes = counted_bytes())
    bytes->predict(plan.schedule.orders[rank], [this](MicroBatch i) { return rows_.of(i).size(); });
  results_.collect();
}

std::vector<const StagePart*> RankRunner::parts() const {
  std::vector<const StagePart*> parts;
  for (const auto& stage : stages_) parts.push_back(&stage->part());
  return parts;
}

// The parts of a step after forward_backward. Traces contain only whole steps.
void RankRunner::run_later_part(const CompiledSchedule& plan) {
  if (job_->learning_rate)
    for (auto& [stage, optimizer] : optimizers_) optimizer->set_learning_rate(*job_->learning_rate);
  gradient_norm_.reset();
  untraced_.begin_step(job_->step);
  execute(plan.programs[placement_.rank().index()], *this, untraced_);
  if (job_->part != StepPart::reduce) return end_update();
  finish_ties();
  if (job_->gradient_divisor == 1) return;
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_)
    for (torch::Tensor& gradient : gradients_of(*stage))
      if (gradient.defined()) gradient = gradient / job_->gradient_divisor;  // not in place: copies share it
}

std::vector<std::pair<std::string, torch::Tensor>> RankRunner::gradients() {
  std::vector<std::pair<std::string, torch::Tensor>> named;
  for (const auto& stage : stages_) {
    const Tensors& gradients = gradients_of(*stage);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined())
        named.emplace_back(stage->gradients().parameters()[i].name,
                           scaler_.scale() == 1 ? gradients[i] : gradients[i] / scaler_.scale());
  }
  return named;
}

void RankRunner::begin(const Instruction& instruction) {
  current_ = instruction;
  Position position = position_of(instruction);
  position.step = static_cast<std::int64_t>(job_->step);
  endpoint().report_progress(position);
}

Arrival RankRunner::receive(const Instruction& instruction) { return messages_.receive(instruction); }

void RankRunner::perform(const Instruction& instruction) {
  switch (instruction.op()) {
    case Op::forward:
      forward(stage(instruction.stage()), instruction.micro_batch());
      --forwards_left_;
      return;
    case Op::backward:
    case Op::input_grad: return backward(stage(instruction.stage()), instruction);
    case Op::weight_grad: return weight_grad(stage(instruction.stage()), instruction);
    case Op::send_forward:
    case Op::send_backward: return messages_.send(instruction);
    case Op::reduce: return reduce(stage(instruction.stage()));
    case Op::step: return update(stage(instruction.stage()));
    case Op::norm: return measure_norm();
    case Op::recv_forward:
    case Op::recv_backward: break;
  }
  throw InternalError(say("the runtime cannot execute ", to_string(instruction)));
}

Stage& RankRunner::stage(StageId id) {
  for (const auto& stage : stages_)
    if (stage->id() == id) return *stage;
  throw InternalError(say("rank ", placement_.rank().value(), " does not own stage ", id.value()));
}

void RankRunner::forward(Stage& stage, MicroBatch micro_batch) {
  const RowRange rows = rows_.of(micro_batch);
  const HeldBytes::Watch watch(counted_bytes());
  Stage::Arrivals arrivals;
  arrivals.place = {setting_.seed, job_->training_step, rows.begin, {}, rows.size()};
  arrivals.micro_batch = micro_batch;
  arrivals.inputs = rows_.inputs(stage.part(), micro_batch);
  arrivals.received = messages_.take_values(stage.part(), micro_batch);

  Stage::Forwarded done = run_layers(stage, arrivals, micro_batch);
  arrivals.inputs.clear();  // frees inputs that no layer has saved
  if (HeldBytes* bytes = counted_bytes())
    bytes->forward_done(context_of(stage.id(), micro_batch), done.activations, done.sends, comes_from_others(stage));
  messages_.put_values(stage.part(), micro_batch, std::move(done.sends));
  if (job_->training) activations_.put(stage.id(), micro_batch, std::move(done.activations));
  if (stage.id() == placement_.last_stage()) results_.end_forward();
}

Stage::Forwarded RankRunner::run_layers(Stage& stage, const Stage::Arrivals& arrivals, MicroBatch micro_batch) {
  const AutocastGuard autocast(autocast_for(setting_.precision, setting_.device.type()));
  const SequenceMemoryGuard memory(memory_of(stage, micro_batch));
  return stage.forward(arrivals, [&](const Tensors& outputs) { return results_.add(outputs, rows_, micro_batch); });
}

SequenceMemory* RankRunner::memory_of(const Stage& stage, MicroBatch micro_batch) {
  if (!job_->inference || !job_->inference->session) return nullptr;
  return &sessions_[*job_->inference->session][{stage.id(), micro_batch}];
}

void RankRunner::fetch_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state) {
  try {
    results_.channel().receive_outputs(step, replicas, state);
  } catch (...) {
    state.fail(failed(std::current_exception(), say("the outputs of step ", step)));
  }
}

// The first training step is not counted, because only it copies values to detect in-place changes.
HeldBytes* RankRunner::counted_bytes() { return job_->training && job_->training_step > 0 ? bytes_.get() : nullptr; }

HeldBytes::Context RankRunner::context_of(StageId stage, MicroBatch micro_batch) const {
  return {stage, micro_batch, rows_.of(micro_batch).size()};
}

std::vector<bool> RankRunner::comes_from_others(const Stage& stage) const {
  std::vector<bool> from_others;
  for (const Port& port : stage.part().receives)
    from_others.insert(from_others.end(), port.values.size(), !placement_.is_local(port.peer));
  return from_others;
}

// B or I.
void RankRunner::backward(Stage& stage, const Instruction& instruction) {
  const MicroBatch micro_batch = instruction.micro_batch();
  OutputGradients from{messages_.take_gradients(stage.part(), micro_batch), {}};
  Activations& activations = activations_.at(stage.id(), micro_batch);
  if (activations.loss.defined())
    from.loss = torch::full_like(activations.loss,
                                 results_.gradient_factor(micro_batch) * job_->shares.newest * scaler_.scale());
  const HeldBytes::Watch watch(counted_bytes());
  std::vector<Message> sends;
  if (instruction.op() == Op::input_grad) {
    sends = stage.input_grad(activations, from);
    if (HeldBytes* bytes = counted_bytes()) bytes->input_grad_done(context_of(stage.id(), micro_batch), activations);
  } else {
    sends = stage.backward(activations_.take(stage.id(), micro_batch), from);
    if (HeldBytes* bytes = counted_bytes()) bytes->released(context_of(stage.id(), micro_batch));
  }
  if (HeldBytes* bytes = counted_bytes())
    bytes->gradients_wait(context_of(stage.id(), micro_batch), stage.gradients().waiting_bytes());
  messages_.put_gradients(stage.part(), micro_batch, std::move(sends));
}

void RankRunner::weight_grad(Stage& stage, const Instruction& instruction) {
  const HeldBytes::Watch watch(counted_bytes());
  std::vector<Activations> group;
  for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
    group.push_back(activations_.take(stage.id(), i));
  stage.weight_grad(std::move(group));
  if (HeldBytes* bytes = counted_bytes())
    for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
      bytes->released(context_of(stage.id(), i));
}

/// The gradients for the update: summed over uses and, after REDUCE, over ties and replicas.
Tensors& RankRunner::gradients_of(Stage& stage) {
  const auto [known, is_new] = gradients_.try_emplace(stage.id());
  if (is_new) known->second = stage.gradients().sum_uses();
  return known->second;
}

}  // namespace penstock
