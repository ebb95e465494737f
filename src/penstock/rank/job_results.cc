#include "penstock/rank/job_results.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/model/loss.h"
#include "penstock/rank/result.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/transport/records.h"
#include "penstock/world/collectives.h"
#include "penstock/world/failures.h"

namespace penstock::rank {

namespace {

/// The numbers of StepNumbers that every step has; the metrics follow in a payload of their own.
struct LossNumbers {
  static constexpr std::string_view record_name = "LossNumbers";

  double loss = 0;
  double weight = 0;
  double loss_sum = 0;
};

bool is_finite(const torch::Tensor& value) {
  const torch::NoGradGuard no_grad;
  return !value.defined() || !(value.is_floating_point() || value.is_complex()) || value.layout() != torch::kStrided ||
         value.isfinite().all().item<bool>();
}

/// The first values that are not finite. An infinity may be meant, as in a mask, so the first NaN is named beside it.
struct FirstValues {
  std::string name, cause, nan;

  void look_at(const torch::Tensor& value, const std::string& of, const std::string& comment = "") {
    if (!nan.empty() || is_finite(value)) return;
    if (name.empty()) name = of, cause = say(of, " is not finite", comment);
    if (value.isnan().any().item<bool>()) nan = of;
  }
  std::string text() const {
    if (!nan.empty() && nan != name) return say(name, " is infinite, and ", nan, " is the first that is not a number");
    return !cause.empty() ? cause
                          : "no layer can be named, because a second forward pass of the micro-batch is finite: a "
                            "layer or the loss has a state other than its parameters and buffers";
  }
};

/// How the step failed on one rank.
struct StepTrouble {
  static constexpr std::string_view record_name = "StepTrouble";
  enum Kind : std::int32_t { cancelled, invalid_loss, other };
  std::int32_t kind = cancelled;
  std::int32_t replica = 0;
  std::int32_t micro_batch = 0;
  double loss = 0;
};

/// An input of a micro-batch that is not finite.
struct SpoiledInput {
  static constexpr std::string_view record_name = "SpoiledInput";
  std::int32_t replica = 0, micro_batch = 0, input = 0;
};

/// Decides for all ranks, from the trouble, cause, parameter and inputs of each. If another error has failed the step
/// too, some ranks may know only that one.
Message decided(const std::vector<Message>& messages) {
  StepTrouble first;
  std::string cause, parameter;
  for (const Message& message : messages) {
    const auto trouble = transport::record_in<StepTrouble>(message);
    if (trouble.kind == StepTrouble::other) return transport::message_of(trouble, cause, parameter);
    if (parameter.empty()) parameter = transport::text_in(message, 2);
    if (trouble.kind == StepTrouble::invalid_loss && first.kind == StepTrouble::cancelled)
      first = trouble, cause = transport::text_in(message, 1);
  }
  for (const Message& message : messages)
    for (const SpoiledInput& spoiled : transport::records_in<SpoiledInput>(message, 3))
      if (spoiled.replica == first.replica && spoiled.micro_batch == first.micro_batch)
        cause = say("input ", spoiled.input, " of the batch is not finite");
  return transport::message_of(first, cause, parameter);
}

/// The network's outputs as losses and metrics take them: not in 16 bits. To be used with autocast disabled.
Tensors in_full_precision(const RankSetting& setting, const Tensors& outputs) {
  Tensors in_full = outputs;
  for (torch::Tensor& output : in_full)
    if (setting.options->precision != Precision::fp32 && output.defined() && layers::is_reduced(output.scalar_type()))
      output = output.to(torch::kFloat32);
  return in_full;
}

// Names the loss in torch's errors.
torch::Tensor loss_of(const Loss& loss, const Tensors& outputs, const Tensors& targets) {
  try {
    return require_scalar(loss.name, loss(outputs, targets));
  } catch (const c10::Error& error) {
    throw Failure(say("the loss '", loss.name, "': ", reason_of(error)));
  }
}

}  // namespace

NonFiniteLoss::NonFiniteLoss(MicroBatch micro_batch, double loss)
    : Failure("the loss is " + text_of_loss(loss)), micro_batch_(micro_batch), loss_(loss) {}

void JobResults::begin(const StepJob& job) {
  job_ = &job;
  is_collected_ = false;
  if (!placement_.is_local(placement_.last_stage())) return;
  numbers_ = {};
  numbers_.metrics.assign(job.metrics.size(), 0);
  const Replica own = placement_.replica();
  forwards_left_ = job.schedule_of(own).schedule.micro_batches;
  if (!job.inference) {
    factors_ = loss_factors(setting_.loss, setting_.options->loss_reduction, {job.targets, setting_.axes.targets},
                            job.layout, own, placement_.context().replicas);
    numbers_.weight = factors_.total_weight;
  }
  if (forwards_left_ == 0) send();
}

void JobResults::clear() {
  job_ = nullptr;
  has_to_send_ = false;
  counted_.clear();
  outputs_.clear();
}

torch::Tensor JobResults::add(const Tensors& outputs, BatchRows& rows, MicroBatch micro_batch) {
  if (job_->inference) {
    outputs_.push_back(outputs);
    return {};
  }
  const Tensors targets = rows.targets(micro_batch);
  const layers::AutocastGuard in_fp32({.enabled = false, .device = setting_.device.type()});
  const Tensors in_full = in_full_precision(setting_, outputs);
  torch::Tensor sum = loss_of(setting_.loss, in_full, targets);
  Counted counted{micro_batch, sum.detach(), {}};
  if (!is_on_device()) add_numbers(counted);
  const torch::NoGradGuard no_grad;
  if (job_->keeps_outputs) outputs_.push_back(in_full);
  for (std::size_t i = 0; i < numbers_.metrics.size(); ++i) {
    const Metric& metric = job_->metrics[i];
    const bool is_later = is_on_device() && metric.count_on_device;
    counted.metrics.push_back(is_later ? metric.count_on_device(in_full, targets) : torch::Tensor());
    if (is_later) continue;
    if (is_on_device()) await_device(say("the metric '", metric.name, "'"));
    numbers_.metrics[i] += metric.count(in_full, targets);
  }
  if (is_on_device()) counted_.push_back(std::move(counted));
  return sum;
}

void JobResults::add_numbers(const Counted& counted) {
  const double factor = factors_.reported[counted.micro_batch.index()];
  if (factor > 0) {
    const auto value = counted.loss.item<double>();
    if (job_->refuses_invalid_loss && !std::isfinite(value)) throw NonFiniteLoss(counted.micro_batch, value);
    numbers_.loss += factor * value;
    numbers_.loss_sum += value;
  }
  for (std::size_t i = 0; i < counted.metrics.size(); ++i)
    if (counted.metrics[i].defined()) numbers_.metrics[i] += counted.metrics[i].item<double>();
}

void JobResults::end_forward() {
  if (--forwards_left_ > 0) return;
  if (is_on_device() && !job_->inference) {
    has_to_send_ = true;
    if (!job_->refuses_invalid_loss) return;
    begin_read_back();
    await_device("the loss");
    transport::current_stream(setting_.device).synchronize();
    end_read_back();
  } else {
    if (is_on_device()) await_device("the outputs");
    send();
  }
}

void JobResults::await_device(const std::string& what) {
  placement_.endpoint().await_stream(transport::current_stream(setting_.device), what);
}

void JobResults::begin_read_back() {
  if (!has_to_send_) return;
  for (Counted& counted : counted_) {
    counted.loss = to_host_later(counted.loss);
    for (torch::Tensor& metric : counted.metrics) metric = to_host_later(metric);
  }
}

void JobResults::end_read_back() {
  if (!std::exchange(has_to_send_, false)) return;
  for (const Counted& counted : std::exchange(counted_, {})) add_numbers(counted);
  send();
}

void JobResults::send() {
  if (job_->inference) return send_outputs(setting_.axes.outputs.join(std::exchange(outputs_, {})));
  keep_outputs();
  // Sends to one rank of each process, which collects the losses, or to all ranks if they refuse an invalid loss.
  const RankContext& context = placement_.context();
  const int receivers = context.is_alone && !job_->refuses_invalid_loss ? 1 : context.world_size();
  for (int r = 0; r < receivers; ++r)
    placement_.endpoint().send(
        WorldRank(r), tag_of(job_->step, context.replica()),
        transport::message_of(LossNumbers{numbers_.loss, numbers_.weight, numbers_.loss_sum}, numbers_.metrics));
}

Tag JobResults::tag_of(std::uint64_t step, Replica from) const {
  return {placement_.pipeline(), Traffic::result, step, from.value(), 0, 0};
}

void JobResults::send_outputs(Tensors outputs) const {
  const Inference& inference = *job_->inference;
  const RankContext& context = placement_.context();
  const Replica own = context.replica();
  const bool is_each = inference.replicas == ReplicaInput::each;
  if (context.is_alone) {
    if (!is_each || own == Replica(0)) inference.state->add_part(own, std::move(outputs));
    return;
  }
  Message message;
  for (const torch::Tensor& output : outputs) message.payloads.push_back({output, false});
  for (WorldRank to(0); to.value() < context.world_size(); to = to.next()) {
    const bool is_last = to.value() / context.replicas == placement_.rank().value();
    const bool is_ours = to.value() % context.replicas == own.value();
    if (to != context.rank && (inference.broadcast || is_last) && (!is_each || is_ours))
      placement_.endpoint().send(to, tag_of(job_->step, own), message);
  }
  // A copy: receivers in this process share the sent tensors, and the program may change its own.
  for (torch::Tensor& output : outputs)
    if (output.defined()) output = output.clone();
  inference.state->add_part(own, std::move(outputs));
}

void JobResults::receive_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state) const {
  const RankContext& context = placement_.context();
  for (Replica from(0); from.value() < context.replicas; from = from.next()) {
    const WorldRank rank = placement_.holder_of(placement_.last_stage(), from);
    if (rank == context.rank) continue;
    if (replicas == ReplicaInput::each && from != context.replica()) continue;
    const Message message = placement_.endpoint().receive(rank, tag_of(step, from), "the outputs");
    Tensors outputs;
    // Received tensors are read-only, and may be views of larger ones.
    for (const Payload& payload : message.payloads)
      outputs.push_back(payload.tensor.defined() ? payload.tensor.clone() : payload.tensor);
    state.add_part(from, std::move(outputs));
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
  StepNumbers total;
  for (Replica from(0); from.value() < placement_.context().replicas; from = from.next()) {
    const WorldRank rank = placement_.holder_of(placement_.last_stage(), from);
    const Message message = placement_.endpoint().receive(rank, tag_of(job_->step, from), "the loss");
    const auto [loss, weight, loss_sum] = transport::record_in<LossNumbers>(message);
    const std::vector<double> metrics = transport::records_in<double>(message, 1);
    total.loss += loss;
    total.weight = weight;  // every replica sends that of the whole batch
    total.loss_sum += loss_sum;
    total.metrics.resize(metrics.size(), 0);
    for (std::size_t i = 0; i < metrics.size(); ++i) total.metrics[i] += metrics[i];
  }
  if (collects) job_->state->set_numbers(std::move(total));
}

std::string cause_of(const LastForward& last, MicroBatch micro_batch) {
  const StagePart& part = last.stage.part();
  const StepJob& job = last.job;
  const RankSetting& setting = last.setting;
  const RowRange rows = last.rows.of(micro_batch);
  if (last.arrivals.micro_batch != micro_batch && !part.receives.empty())
    return "no layer is named, because the device has reported the loss after later micro-batches";

  FirstValues first;
  for (std::size_t port = 0; port < last.arrivals.received.size(); ++port)
    for (std::size_t i = 0; i < part.receives[port].values.size(); ++i)
      first.look_at(last.arrivals.received[port].payloads[i].tensor,
                    say("the output of '", last.graph.name_of(part.receives[port].values[i]), "' (stage ",
                        part.receives[port].peer.value(), "), which stage ", part.id.value(), " receives,"));
  last.stage.set_check([&](int node, const Tensors& outputs) {
    const Node& call = last.graph.nodes[static_cast<std::size_t>(node)];
    const std::string name = say("the output of ", call.is_layer() ? "layer" : "function", " '", call.name, "' (stage ",
                                 part.id.value(), ")");
    for (const torch::Tensor& output : outputs) first.look_at(output, name, ", though its inputs and parameters are");
  });
  try {
    const layers::AutocastGuard autocast(layers::autocast_for(setting.options->precision, setting.device.type()));
    const Tensors targets = last.rows.targets(micro_batch);
    const RandomPlace place{setting.options->seed, job.training_step, rows.begin, {}, rows.size()};
    const Tensors inputs = last.rows.inputs(part, micro_batch);
    last.stage.forward({last.arrivals.received, inputs, place, micro_batch}, [&](const Tensors& outputs) {
      for (std::size_t i = 0; i < targets.size(); ++i) first.look_at(targets[i], say("target ", i, " of the batch"));
      const layers::AutocastGuard in_fp32({.enabled = false, .device = setting.device.type()});
      first.look_at(setting.loss(in_full_precision(setting, outputs), targets),
                    say("the loss ('", setting.loss.name, "')"), ", though its arguments are");
      return torch::Tensor();
    });
  } catch (const std::exception& error) {
    first = {};
    first.cause = say("no layer can be named, because a second forward pass failed (", reason_of(error), ")");
  }
  last.stage.set_check(nullptr);
  return first.text();
}

std::exception_ptr agreed_invalid_loss(const StagePlacement& placement, const RankStages& stages,
                                       const RankSetting& setting, const StepJob& job, const std::exception_ptr& own,
                                       std::optional<std::uint64_t> last_update) {
  StepTrouble trouble{.replica = placement.replica().value()};
  std::string cause, parameter;
  try {
    std::rethrow_exception(own);
  } catch (const NonFiniteLoss& invalid) {
    trouble = {StepTrouble::invalid_loss, trouble.replica, invalid.micro_batch().value(), invalid.loss()};
    cause = invalid.cause;
  } catch (const StepCancelled&) {
  } catch (...) {
    trouble.kind = StepTrouble::other;
  }
  std::vector<SpoiledInput> inputs;
  BatchRows rows(placement, setting.axes, setting.device);
  rows.begin(job);
  for (const auto& stage : stages) {
    for (const Stage::Held& held : stage->state())
      if (parameter.empty() && !held.is_buffer() && !is_finite(held.value))
        parameter = say("parameter '", held.name, "' (stage ", stage->id().value(), ") is not finite");
    for (MicroBatch i(0); i.value() < rows.micro_batches() && !stage->part().graph_inputs.empty(); i = i.next()) {
      const Tensors read = rows.inputs(stage->part(), i);
      for (std::size_t input = 0; input < read.size(); ++input)
        if (!is_finite(read[input])) inputs.push_back({trouble.replica, i.value(), stage->part().graph_inputs[input]});
    }
  }

  const Message decision = agree(placement.context(), control_tag(placement.pipeline(), Topic::invalid_loss, job.step),
                                 transport::message_of(trouble, cause, parameter, inputs), decided,
                                 {.parts = "why the step failed", .decision = "why rank 0 says that it failed"});
  trouble = transport::record_in<StepTrouble>(decision);
  if (trouble.kind != StepTrouble::invalid_loss) return nullptr;
  InvalidStep invalid{.step = job.training_step,
                      .loss = trouble.loss,
                      .replica = trouble.replica,
                      .replicas = placement.context().replicas,
                      .micro_batch = trouble.micro_batch,
                      .stage = placement.last_stage().value(),
                      .cause = transport::text_in(decision, 1)};
  if (parameter = transport::text_in(decision, 2); !parameter.empty()) {
    invalid.spoiled_by = last_update;
    invalid.cause = last_update ? say(parameter, " since the update of training step ", *last_update, " at the latest")
                                : parameter + ", and no update has changed it";
  }
  return std::make_exception_ptr(InvalidLoss(invalid));
}

}  // namespace penstock::rank
