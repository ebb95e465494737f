#include "penstock/rank/boundary_messages.h"

#include <utility>

#include "penstock/base/error.h"

namespace penstock {

BoundaryMessages::BoundaryMessages(const StagePlacement& placement, const Graph& graph, Setting setting)
    : placement_(placement), graph_(graph), setting_(std::move(setting)) {}

void BoundaryMessages::clear() {
  inbox_.clear();
  outbox_.clear();
}

Tag BoundaryMessages::tag_of(Traffic traffic, Link link, MicroBatch micro_batch) const {
  return {placement_.pipeline(), traffic, step_, link.from.value(), link.to.value(), micro_batch.value()};
}

// Gradients travel against their link's direction, so that the reader of the values sends them.
Tag BoundaryMessages::tag_of(const Instruction& message) const {
  const bool is_forward = message.op() == Op::send_forward || message.op() == Op::recv_forward;
  const bool by_producer = message.op() == Op::send_forward || message.op() == Op::recv_backward;
  const Link link = by_producer ? Link{message.stage(), message.peer()} : Link{message.peer(), message.stage()};
  return tag_of(is_forward ? Traffic::forward : Traffic::backward, link, message.micro_batch());
}

Arrival BoundaryMessages::receive(const Instruction& instruction) {
  const Tag tag = tag_of(instruction);
  Message message =
      placement_.endpoint().receive(placement_.holder_of(instruction.peer()), tag, to_string(instruction));
  const Arrival arrival{message.arrived_ns, message.transit_ns()};
  for (Payload& payload : message.payloads)
    payload.tensor = from_host_.receive_from_host(payload.tensor, setting_.device);
  inbox_[tag] = std::move(message);
  return arrival;
}

void BoundaryMessages::send(const Instruction& instruction) {
  const Tag tag = tag_of(instruction);
  auto node = outbox_.extract(tag);
  require<InternalError>(!node.empty(), to_string(instruction), " has nothing to send");
  placement_.endpoint().send(placement_.holder_of(instruction.peer()), tag, std::move(node.mapped()));
}

void BoundaryMessages::put(const Tag& tag, StageId reader, Message message) {
  (placement_.is_local(reader) ? inbox_ : outbox_)[tag] = std::move(message);
}

Message BoundaryMessages::take(const Tag& tag) {
  auto node = inbox_.extract(tag);
  require<InternalError>(!node.empty(), "the message of micro-batch ", tag.micro_batch, " from stage ", tag.from_stage,
                         " to stage ", tag.to_stage, " is not there");
  return std::move(node.mapped());
}

std::vector<Message> BoundaryMessages::take_values(const StagePart& stage, MicroBatch micro_batch) {
  std::vector<Message> messages;
  for (const Port& port : stage.receives)
    messages.push_back(take(tag_of(Traffic::forward, {port.peer, stage.id}, micro_batch)));
  return messages;
}

void BoundaryMessages::put_values(const StagePart& stage, MicroBatch micro_batch, std::vector<Message> messages) {
  for (std::size_t p = 0; p < messages.size(); ++p) {
    const Port& port = stage.sends[p];
    if (setting_.shape) require_shape(stage, port, messages[p]);
    put(tag_of(Traffic::forward, {stage.id, port.peer}, micro_batch), port.peer, std::move(messages[p]));
  }
}

std::vector<Message> BoundaryMessages::take_gradients(const StagePart& stage, MicroBatch micro_batch) {
  std::vector<Message> messages;
  for (const Port& port : stage.sends) {
    const Tag tag = tag_of(Traffic::backward, {stage.id, port.peer}, micro_batch);
    messages.push_back(inbox_.contains(tag) ? take(tag) : Message{std::vector<Payload>(port.values.size()), 0, 0});
  }
  return messages;
}

void BoundaryMessages::put_gradients(const StagePart& stage, MicroBatch micro_batch, std::vector<Message> messages) {
  for (std::size_t p = 0; p < messages.size(); ++p) {
    const StageId producer = stage.receives[p].peer;
    put(tag_of(Traffic::backward, {producer, stage.id}, micro_batch), producer, std::move(messages[p]));
  }
}

void BoundaryMessages::require_shape(const StagePart& stage, const Port& port, const Message& message) const {
  const at::IntArrayRef wanted(*setting_.shape);
  for (std::size_t i = 0; i < port.values.size(); ++i) {
    const torch::Tensor& value = message.payloads[i].tensor;
    require<ScheduleError>(!value.defined() || value.sizes() == wanted, "stage ", stage.id.value(), " gives '",
                           graph_.name_of(port.values[i]), "' of shape ", value.sizes(), " to stage ",
                           port.peer.value(), ", but the boundary shape is ", wanted,
                           ": correct the shape, or leave it out where micro-batches differ");
  }
}

}  // namespace penstock
