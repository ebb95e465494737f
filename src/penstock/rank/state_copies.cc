#include "penstock/rank/state_copies.h"

#include <utility>

#include "penstock/rank/reduce.h"
#include "penstock/rank/tied_gradients.h"

namespace penstock {

void StateCopies::share_buffers(const StepJob& job) {
  if (job.training) buffers_differ_ = true;
  if (job.training || !std::exchange(buffers_differ_, false)) return;
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_) {
    Tensors buffers;
    for (const Stage::Held& held : stage->state())
      if (held.all_uses.list.empty()) buffers.push_back(held.value);
    ReplicaGroup group = replicas_of(placement_, stage->id(), Traffic::control, job.step);
    group.tag.micro_batch = -2;  // differs from synchronise(), whose rounds have their own counter
    copy_from_first(group, buffers, "the buffers of replica 0");
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
  const TieRoute route{placement_, StepKey::tied_values + round};
  if (placement_.replica() == Replica(0)) {
    for (const auto& stage : stages_) send_values(route, *stage);
    for (const auto& stage : stages_) receive_values(route, *stage);
  }
  for (const auto& stage : stages_) {
    Tensors values;
    for (const Stage::Held& held : stage->state()) values.push_back(held.value);
    copy_from_first(replicas_of(placement_, stage->id(), Traffic::control, round), values,
                    "the parameters of replica 0");
  }
}

}  // namespace penstock
