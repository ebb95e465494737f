// RankRunner: sums gradients over ties and replicas, and synchronises values.
#include <utility>

#include "penstock/runtime/rank_runner.h"

namespace penstock {

TieRoute RankRunner::tie_route(std::uint64_t round) const {
  return {endpoint(), setting_.pipeline, round, [this](StageId stage) { return placement_.holder_of(stage); }};
}

ReplicaGroup RankRunner::replica_group(const Stage& stage, Traffic traffic, std::uint64_t round) const {
  ReplicaGroup group{
      endpoint(), {setting_.pipeline, traffic, round, stage.id().value(), 0, -1}, placement_.replica(), {}};
  for (int r = 0; r < context().replicas; ++r) group.ranks.push_back(placement_.holder_of(stage.id(), Replica(r)));
  return group;
}

// Replaces the gradients with the indices `chosen` by their sums over the replicas. `gradients` are by parameter of
// `stage`.
void RankRunner::sum_replicas(const Stage& stage, Traffic traffic, const std::vector<std::size_t>& chosen,
                              Tensors& gradients) {
  Tensors own, like;
  for (const std::size_t i : chosen) {
    own.push_back(gradients[i]);
    like.push_back(stage.gradients().parameters()[i].value);
  }
  Tensors sums = sum_over_replicas(replica_group(stage, traffic, job_->step), own, like);
  for (std::size_t k = 0; k < chosen.size(); ++k) gradients[chosen[k]] = std::move(sums[k]);
}

// Sends the uses of tied parameters to their owners, and sums all other gradients over the replicas.
void RankRunner::reduce(Stage& stage) {
  const auto& parameters = stage.gradients().parameters();
  send_uses(tie_route(job_->step), stage);
  std::vector<std::size_t> untied;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].all_uses.is_tied()) untied.push_back(i);
  // gradients_of() may be set already: local_gradients() sums the uses.
  sum_replicas(stage, Traffic::reduce, untied, gradients_of(stage));
  ties_pending_ = true;
}

// All owner stages of this rank sum and send before any stage waits for the totals of others.
void RankRunner::finish_ties() {
  if (!std::exchange(ties_pending_, false)) return;
  const TieRoute route = tie_route(job_->step);
  for (const auto& stage : stages_) {
    const auto& parameters = stage->gradients().parameters();
    Tensors totals = sum_tied(route, *stage);
    std::vector<std::size_t> owned_here;
    for (std::size_t i = 0; i < parameters.size(); ++i)
      if (parameters[i].all_uses.is_tied() && parameters[i].all_uses.owner() == stage->id()) owned_here.push_back(i);
    if (owned_here.empty()) continue;
    sum_replicas(*stage, Traffic::ties, owned_here, totals);
    for (const std::size_t i : owned_here) gradients_[stage->id()][i] = totals[i];
    send_totals(route, *stage, totals);
  }
  for (const auto& stage : stages_) receive_totals(route, *stage, gradients_[stage->id()]);
}

void RankRunner::share_buffers() {
  if (job_->training) buffers_differ_ = true;
  if (job_->training || !std::exchange(buffers_differ_, false)) return;
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_) {
    Tensors buffers;
    for (const Stage::Held& held : stage->state())
      if (held.all_uses.list.empty()) buffers.push_back(held.value);
    ReplicaGroup group = replica_group(*stage, Traffic::control, job_->step);
    group.tag.micro_batch = -2;  // differs from synchronise(), whose rounds have their own counter
    copy_from_first(group, buffers, "the buffers of replica 0");
  }
}

void RankRunner::synchronise(std::uint64_t round) {
  const torch::NoGradGuard no_grad;
  const TieRoute route = tie_route(round);
  if (placement_.replica() == Replica(0)) {
    for (const auto& stage : stages_) send_values(route, *stage);
    for (const auto& stage : stages_) receive_values(route, *stage);
  }
  for (const auto& stage : stages_) {
    Tensors values;
    for (const Stage::Held& held : stage->state()) values.push_back(held.value);
    copy_from_first(replica_group(*stage, Traffic::control, round), values, "the parameters of replica 0");
  }
}

}  // namespace penstock
