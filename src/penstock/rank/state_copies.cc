#include "penstock/rank/state_copies.h"

#include <utility>

#include "penstock/rank/shared_parameters.h"

namespace penstock::rank {
namespace {

/// Overwrites `values`, the same tensors on every replica, with those of replica 0. Called on every replica; replica 0
/// sends and does not wait. `waiting_for` names the awaited message in errors.
void copy_from_first(const ReplicaGroup& group, Phase phase, const Tensors& values, const char* waiting_for) {
  if (values.empty()) return;
  if (group.own() != Replica(0)) {
    const Message message = group.receive(Replica(0), phase, waiting_for);
    for (std::size_t i = 0; i < values.size(); ++i) torch::Tensor(values[i]).copy_(message.payloads[i].tensor);
    return;
  }
  for (Replica r(1); r.value() < group.count(); r = r.next()) {
    Message message;
    for (const torch::Tensor& value : values) message.payloads.push_back({value.detach().clone(), false});
    group.send(r, phase, std::move(message));
  }
}

/// The values of tied parameters, including frozen ones: the owner sends them to the other stages that use them.
void send_values(const TieRoute& route, const Stage& stage) {
  for (const StageId user : partners(stage.state(), stage.id(), true)) {
    Message message;
    for (std::size_t i : shared(stage.state(), stage.id(), user))
      message.payloads.push_back({stage.state()[i].value.detach().clone(), false});
    route.send({stage.id(), user, Content::values}, std::move(message));
  }
}

void receive_values(const TieRoute& route, const Stage& stage) {
  const torch::NoGradGuard no_grad;
  for (const StageId owner : partners(stage.state(), stage.id(), false)) {
    const Message message = route.receive({owner, stage.id(), Content::values}, "the values of tied parameters");
    auto payload = message.payloads.begin();
    for (std::size_t i : shared(stage.state(), owner, stage.id())) {
      torch::Tensor value = stage.state()[i].value;
      value.copy_((payload++)->tensor);
    }
  }
}

}  // namespace

void StateCopies::share_buffers(const StepJob& job) {
  if (job.training) buffers_differ_ = true;
  if (job.training || !std::exchange(buffers_differ_, false)) return;
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_) {
    Tensors buffers;
    for (const Stage::Held& held : stage->state())
      if (held.all_uses.list.empty()) buffers.push_back(held.value);
    copy_from_first({placement_, stage->id(), Traffic::control, job.step}, Phase::buffers, buffers,
                    "the buffers of replica 0");
  }
}

Tensors StateCopies::buffers() const {
  Tensors buffers;
  for (const auto& stage : stages_)
    for (const Stage::Held& held : stage->state())
      if (held.is_buffer()) buffers.push_back(held.value);
  return buffers;
}

void StateCopies::keep_buffers(const StepJob& job) {
  are_kept_ = job.training && job.part == StepPart::whole;
  if (!are_kept_) return;
  const torch::NoGradGuard no_grad;
  const Tensors now = buffers();
  if (kept_.empty())
    for (const torch::Tensor& buffer : now) kept_.push_back(torch::empty_like(buffer));
  for (std::size_t i = 0; i < now.size(); ++i) kept_[i].copy_(now[i]);
}

void StateCopies::restore_buffers() {
  if (!are_kept_) return;
  const torch::NoGradGuard no_grad;
  const Tensors now = buffers();
  for (std::size_t i = 0; i < now.size(); ++i) torch::Tensor(now[i]).copy_(kept_[i]);
}

void StateCopies::synchronise(std::uint64_t round) {
  const torch::NoGradGuard no_grad;
  const TieRoute route{placement_, round};
  if (placement_.replica() == Replica(0)) {
    for (const auto& stage : stages_) send_values(route, *stage);
    for (const auto& stage : stages_) receive_values(route, *stage);
  }
  for (const auto& stage : stages_) {
    Tensors values;
    for (const Stage::Held& held : stage->state()) values.push_back(held.value);
    copy_from_first({placement_, stage->id(), Traffic::control, round}, Phase::state, values,
                    "the parameters of replica 0");
  }
}

}  // namespace penstock::rank
