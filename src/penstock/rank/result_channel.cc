#include "penstock/rank/result_channel.h"

#include <string_view>
#include <utility>

#include "penstock/transport/records.h"

namespace penstock {
namespace {

/// The numbers of StepNumbers that every step has; the metrics follow in a payload of their own.
struct LossNumbers {
  static constexpr std::string_view record_name = "LossNumbers";

  double loss = 0;
  double weight = 0;
  double loss_sum = 0;
};

Message numbers_message(const StepNumbers& numbers) {
  return message_of(LossNumbers{numbers.loss, numbers.weight, numbers.loss_sum}, numbers.metrics);
}

StepNumbers numbers_in(const Message& message) {
  const auto [loss, weight, loss_sum] = record_in<LossNumbers>(message);
  return {loss, weight, loss_sum, records_in<double>(message, 1)};
}

Message outputs_message(const Tensors& outputs) {
  Message message;
  for (const torch::Tensor& output : outputs) message.payloads.push_back({output, false});
  return message;
}

Tensors outputs_in(const Message& message) {
  Tensors outputs;
  // Received tensors are read-only, and may be views of larger ones.
  for (const Payload& payload : message.payloads)
    outputs.push_back(payload.tensor.defined() ? payload.tensor.clone() : payload.tensor);
  return outputs;
}

}  // namespace

Tag ResultChannel::tag_of(std::uint64_t step, Replica from) const {
  return {placement_.pipeline(), Traffic::result, step, from.value(), 0, 0};
}

void ResultChannel::send(std::uint64_t step, const StepNumbers& part, To to) const {
  const RankContext& context = placement_.context();
  const Tag tag = tag_of(step, context.replica());
  const int receivers = context.is_alone && to == To::processes ? 1 : context.world_size();
  for (int r = 0; r < receivers; ++r) placement_.endpoint().send(WorldRank(r), tag, numbers_message(part));
}

StepNumbers ResultChannel::receive(std::uint64_t step) const {
  StepNumbers total;
  for (Replica from(0); from.value() < placement_.context().replicas; from = from.next()) {
    const WorldRank rank = placement_.holder_of(placement_.last_stage(), from);
    const StepNumbers part = numbers_in(placement_.endpoint().receive(rank, tag_of(step, from), "the loss"));
    total.loss += part.loss;
    total.weight = part.weight;  // every replica sends that of the whole batch
    total.loss_sum += part.loss_sum;
    total.metrics.resize(part.metrics.size(), 0);
    for (std::size_t i = 0; i < part.metrics.size(); ++i) total.metrics[i] += part.metrics[i];
  }
  return total;
}

void ResultChannel::send_outputs(std::uint64_t step, const Inference& inference, Tensors outputs) const {
  const RankContext& context = placement_.context();
  const Replica own = context.replica();
  const bool is_each = inference.replicas == ReplicaInput::each;
  if (context.is_alone) {
    if (!is_each || own == Replica(0)) inference.state->add_part(own, std::move(outputs));
    return;
  }
  for (WorldRank to(0); to.value() < context.world_size(); to = to.next()) {
    const bool is_last = to.value() / context.replicas == placement_.rank().value();
    const bool is_ours = to.value() % context.replicas == own.value();
    if (to != context.rank && (inference.broadcast || is_last) && (!is_each || is_ours))
      placement_.endpoint().send(to, tag_of(step, own), outputs_message(outputs));
  }
  // A copy: receivers in this process share the sent tensors, and the program may change its own.
  for (torch::Tensor& output : outputs)
    if (output.defined()) output = output.clone();
  inference.state->add_part(own, std::move(outputs));
}

void ResultChannel::receive_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state) const {
  const RankContext& context = placement_.context();
  for (Replica from(0); from.value() < context.replicas; from = from.next()) {
    const WorldRank rank = placement_.holder_of(placement_.last_stage(), from);
    if (rank == context.rank) continue;
    if (replicas == ReplicaInput::each && from != context.replica()) continue;
    state.add_part(from, outputs_in(placement_.endpoint().receive(rank, tag_of(step, from), "the outputs")));
  }
}

}  // namespace penstock
