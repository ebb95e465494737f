#include "penstock/runtime/rank_runner.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/layers/autocast.h"
#include "penstock/model/loss_checks.h"
#include "penstock/runtime/compare_batches.h"
#include "penstock/runtime/position.h"

namespace penstock {
namespace {

Message message_of(std::vector<double> numbers) { return {{{torch::tensor(numbers, torch::kFloat64), false}}, 0, 0}; }

}  // namespace

RankRunner::RankRunner(const StagedGraph& staged, const Schedule& placement, const RankSetting& setting)
    : staged_(staged),
      placement_(placement),
      setting_(setting),
      rank_(setting.context.pipeline_rank()),
      replica_(setting.context.replica()),
      scaler_(setting.precision, setting.loss_scaling) {
  if (setting.boundary_shape) endpoint().declare_shape(setting.pipeline, *setting.boundary_shape);
  if (setting.count_bytes) bytes_ = std::make_unique<HeldBytes>();
  for (Order& order : placement_.orders) order.clear();
  for (const StagePart& part : staged_.parts)
    if (is_local(part.id))
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
  inbox_.clear();
  outbox_.clear();
  outputs_.clear();
  whole_.clear();
  if (failure && bytes_) bytes_->clear();
  // Gradients are kept for the next part of the step.
  const bool keeps_gradients = job.part == StepPart::forward_backward || job.part == StepPart::reduce;
  if (failure || (job.training && !keeps_gradients)) gradients_.clear();
  job.state->rank_done(failure);
}

void RankRunner::run_or_throw(const StepJob& job) {
  const CompiledSchedule& plan = *job.plans[replica_.index()];
  job_ = &job;
  if (job.part == StepPart::reduce || job.part == StepPart::update) return run_later_part(plan);
  if (job.training && !context().is_alone && is_compared(job.training_step, setting_.compare_batches))
    compare_batches();
  loss_ = loss_sum_ = 0;
  finished_forwards_ = 0;
  forwards_left_ = stages_.size() * static_cast<std::size_t>(plan.schedule.micro_batches);
  gradient_norm_.reset();
  metric_sums_.assign(job.metrics.size(), 0);
  share_buffers();
  for (const auto& stage : stages_) {
    stage->set_training(job.training);
    if (job.training) continue_gradients(*stage);
  }
  if (job.learning_rate)
    for (auto& [stage, optimizer] : optimizers_) optimizer->set_learning_rate(*job.learning_rate);
  const bool has_last_stage = is_local(staged_.parts.back().id);
  if (has_last_stage && !job.inference)
    factors_ = loss_factors(setting_.loss, setting_.reductions, {job.targets, setting_.axes.targets}, job.layout,
                            replica_, context().replicas);
  activations_.set_bound(plan.peak_activations[rank_.index()]);
  predicted_activations_ = std::max(predicted_activations_, plan.peak_activations[rank_.index()]);

  const torch::AutoGradMode with_graph(job.training);
  // Traces contain only steps of the full schedule, because others are not comparable with it.
  Recorder& recorder = job.training && plan.schedule.micro_batches == placement_.micro_batches ? recorder_ : untraced_;
  recorder.begin_step(job.step);
  if (has_last_stage && plan.schedule.micro_batches == 0) report_result();
  execute(plan.programs[rank_.index()], *this, recorder);
  recorder.end_step();
  if (job.training && job.part == StepPart::whole) end_update();
  if (const BusyTime& busy = recorder.newest_busy(); job.training)
    job.state->add_use({busy.begin_ns, busy.end_ns, busy.busy_ns, activations_.peak()});
  if (HeldBytes* bytes = counted_bytes())
    bytes->predict(plan.schedule.orders[rank_.index()], [this](MicroBatch i) { return rows_of(i).size(); });
  if (!job.inference) collect_result();
}

// The parts of a step after forward_backward. Traces contain only whole steps.
void RankRunner::run_later_part(const CompiledSchedule& plan) {
  if (job_->learning_rate)
    for (auto& [stage, optimizer] : optimizers_) optimizer->set_learning_rate(*job_->learning_rate);
  gradient_norm_.reset();
  untraced_.begin_step(job_->step);
  execute(plan.programs[rank_.index()], *this, untraced_);
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

Arrival RankRunner::receive(const Instruction& instruction) {
  const MessageKey key = key_of(instruction);
  const WorldRank from = context().rank_of(placement_.rank_of(instruction.peer()), replica_);
  Message message = endpoint().receive(from, tag_of(key), to_string(instruction));
  const Arrival arrival{message.arrived_ns, message.transit_ns()};
  inbox_[key] = std::move(message);
  return arrival;
}

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
    case Op::send_backward: {
      const MessageKey key = key_of(instruction);
      auto node = outbox_.extract(key);
      require<InternalError>(!node.empty(), to_string(instruction), " has nothing to send");
      const WorldRank to = context().rank_of(placement_.rank_of(instruction.peer()), replica_);
      return endpoint().send(to, tag_of(key), std::move(node.mapped()));
    }
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
  throw InternalError(say("rank ", rank_.value(), " does not own stage ", id.value()));
}

RankRunner::MessageKey RankRunner::key_of(const Instruction& message) {
  const bool is_forward = message.op() == Op::send_forward || message.op() == Op::recv_forward;
  const bool by_producer = message.op() == Op::send_forward || message.op() == Op::recv_backward;
  return {by_producer ? message.stage() : message.peer(), by_producer ? message.peer() : message.stage(),
          message.micro_batch(), is_forward};
}

Tag RankRunner::tag_of(const MessageKey& key) const {
  return {setting_.pipeline, key.forward ? Traffic::forward : Traffic::backward,
          job_->step,        key.from.value(),
          key.to.value(),    key.micro_batch.value()};
}

void RankRunner::forward(Stage& stage, MicroBatch micro_batch) {
  const RowRange rows = rows_of(micro_batch);
  const RowRange input_rows{rows.begin - job_->first_input_row, rows.end - job_->first_input_row};
  const HeldBytes::Watch watch(counted_bytes());
  Stage::Arrivals arrivals;
  arrivals.place = {setting_.seed, job_->training_step, rows.begin, {}, rows.size()};
  arrivals.micro_batch = micro_batch;
  for (int input : stage.part().graph_inputs)
    arrivals.inputs.push_back(rows_of_batch(BatchPart::inputs, static_cast<std::size_t>(input), input_rows));
  for (const Port& port : stage.part().receives)
    arrivals.received.push_back(take_message({port.peer, stage.id(), micro_batch, true}));

  Stage::Forwarded done = run_layers(stage, arrivals, micro_batch);
  arrivals.inputs.clear();  // frees inputs that no layer has saved
  if (HeldBytes* bytes = counted_bytes())
    bytes->forward_done(context_of(stage.id(), micro_batch), done.activations, done.sends, comes_from_others(stage));
  for (std::size_t p = 0; p < done.sends.size(); ++p) {
    const Port& port = stage.part().sends[p];
    if (setting_.boundary_shape) check_boundary(stage, port, done.sends[p]);
    post_message({stage.id(), port.peer, micro_batch, true}, std::move(done.sends[p]));
  }
  if (job_->training) activations_.put(stage.id(), micro_batch, std::move(done.activations));
  const bool is_last_stage = stage.id() == staged_.parts.back().id;
  if (is_last_stage && ++finished_forwards_ == job_->layout.micro_batches(share_of_batch())) report_result();
}

Stage::Forwarded RankRunner::run_layers(Stage& stage, const Stage::Arrivals& arrivals, MicroBatch micro_batch) {
  const AutocastGuard autocast(autocast_for(setting_.precision, setting_.device.type()));
  const SequenceMemoryGuard memory(memory_of(stage, micro_batch));
  return stage.forward(arrivals, [&](const Tensors& outputs) {
    if (!job_->inference) return finish_forward(outputs, micro_batch);
    outputs_.push_back(outputs);
    return torch::Tensor();
  });
}

// The first training step is not counted, because only it copies values to detect in-place changes.
HeldBytes* RankRunner::counted_bytes() { return job_->training && job_->training_step > 0 ? bytes_.get() : nullptr; }

RowRange RankRunner::rows_of(MicroBatch micro_batch) const { return job_->layout.rows(share_of_batch(), micro_batch); }

HeldBytes::Context RankRunner::context_of(StageId stage, MicroBatch micro_batch) const {
  return {stage, micro_batch, rows_of(micro_batch).size()};
}

std::vector<bool> RankRunner::comes_from_others(const Stage& stage) const {
  std::vector<bool> from_others;
  for (const Port& port : stage.part().receives)
    from_others.insert(from_others.end(), port.values.size(), !is_local(port.peer));
  return from_others;
}

void RankRunner::check_boundary(const Stage& stage, const Port& port, const Message& message) const {
  const at::IntArrayRef wanted(*setting_.boundary_shape);
  for (std::size_t i = 0; i < port.values.size(); ++i) {
    const torch::Tensor& value = message.payloads[i].tensor;
    require<ScheduleError>(!value.defined() || value.sizes() == wanted, "stage ", stage.id().value(), " gives '",
                           staged_.graph.name_of(port.values[i]), "' of shape ", value.sizes(), " to stage ",
                           port.peer.value(), ", but the boundary shape is ", wanted,
                           ": correct the shape, or leave it out where micro-batches differ");
  }
}

torch::Tensor RankRunner::finish_forward(const Tensors& outputs, MicroBatch micro_batch) {
  const RowRange rows = job_->layout.rows(replica_, micro_batch);
  Tensors targets;
  for (std::size_t i = 0; i < job_->targets.size(); ++i) targets.push_back(rows_of_batch(BatchPart::targets, i, rows));
  const AutocastGuard in_fp32({.enabled = false, .device = setting_.device.type()});
  Tensors in_full = outputs;
  for (torch::Tensor& output : in_full)
    if (setting_.precision != Precision::fp32 && output.defined() && is_reduced(output.scalar_type()))
      output = output.to(torch::kFloat32);
  torch::Tensor sum = require_scalar(setting_.loss.name, setting_.loss(in_full, targets));
  const double factor = factors_.reported[micro_batch.index()];
  if (factor > 0) {
    loss_ += factor * sum.item<double>();
    loss_sum_ += sum.item<double>();
  }
  const torch::NoGradGuard no_grad;
  if (job_->keeps_outputs) outputs_.push_back(in_full);
  for (std::size_t i = 0; i < metric_sums_.size(); ++i) metric_sums_[i] += job_->metrics[i].count(in_full, targets);
  return sum;
}

// B or I.
void RankRunner::backward(Stage& stage, const Instruction& instruction) {
  const MicroBatch micro_batch = instruction.micro_batch();
  OutputGradients from;
  for (const Port& port : stage.part().sends) {
    const MessageKey key{stage.id(), port.peer, micro_batch, false};
    // A link that carries no gradient has no backward message.
    from.messages.push_back(inbox_.contains(key) ? take_message(key)
                                                 : Message{std::vector<Payload>(port.values.size()), 0, 0});
  }
  Activations& activations = activations_.at(stage.id(), micro_batch);
  if (activations.loss.defined())
    from.loss = torch::full_like(activations.loss,
                                 factors_.gradient[micro_batch.index()] * job_->shares.newest * scaler_.scale());
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
  for (std::size_t p = 0; p < sends.size(); ++p)
    post_message({stage.part().receives[p].peer, stage.id(), micro_batch, false}, std::move(sends[p]));
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

void RankRunner::post_message(const MessageKey& key, Message message) {
  const StageId consumer = key.forward ? key.to : key.from;
  (is_local(consumer) ? inbox_ : outbox_)[key] = std::move(message);
}

Message RankRunner::take_message(const MessageKey& key) {
  auto node = inbox_.extract(key);
  require<InternalError>(!node.empty(), "the message of micro-batch ", key.micro_batch.value(), " from stage ",
                         key.from.value(), " to stage ", key.to.value(), " is not there");
  return std::move(node.mapped());
}

// The last stage's rank of every replica sends its part to the first rank of every process, right after its last F.
void RankRunner::report_result() {
  if (job_->inference) return report_outputs();
  keep_outputs();
  std::vector<double> numbers{loss_, factors_.total_weight, loss_sum_};
  numbers.insert(numbers.end(), metric_sums_.begin(), metric_sums_.end());
  const Tag tag{setting_.pipeline, Traffic::result, job_->step, replica_.value(), 0, 0};
  if (context().is_alone) {
    endpoint().send(WorldRank(0), tag, message_of(numbers));
  } else {
    for (int r = 0; r < context().world_size(); ++r) endpoint().send(WorldRank(r), tag, message_of(numbers));
  }
}

void RankRunner::collect_result() {
  if (!context().collects) return;
  StepNumbers total;
  total.metrics.assign(job_->metrics.size(), 0);
  const Rank last = placement_.rank_of(staged_.parts.back().id);
  for (int r = 0; r < context().replicas; ++r) {
    const Tag tag{setting_.pipeline, Traffic::result, job_->step, r, 0, 0};
    const Message message = endpoint().receive(context().rank_of(last, Replica(r)), tag, "the loss");
    const auto numbers = message.payloads.front().tensor.accessor<double, 1>();
    total.loss += numbers[0];
    total.weight = numbers[1];
    total.loss_sum += numbers[2];
    for (std::size_t i = 0; i < total.metrics.size(); ++i)
      total.metrics[i] += numbers[static_cast<std::int64_t>(i) + 3];
  }
  job_->state->set_numbers(std::move(total));
}

/// The gradients for the update: summed over uses and, after REDUCE, over ties and replicas.
Tensors& RankRunner::gradients_of(Stage& stage) {
  const auto [known, is_new] = gradients_.try_emplace(stage.id());
  if (is_new) known->second = stage.gradients().sum_uses();
  return known->second;
}

}  // namespace penstock
