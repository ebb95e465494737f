#include "penstock/rank/gradient_reducer.h"

#include <algorithm>
#include <compare>
#include <string_view>

#include "penstock/base/device_copy.h"
#include "penstock/rank/reduce.h"
#include "penstock/transport/records.h"

namespace penstock {
namespace {

/// A parameter whose gradient is part of the norm. Ordered as the network first uses the parameters.
struct NormPart {
  static constexpr std::string_view record_name = "NormPart";

  std::int64_t node = 0;       // the first that uses the parameter
  std::int64_t parameter = 0;  // its number among those of the stage

  friend auto operator<=>(const NormPart&, const NormPart&) = default;
};

/// The scalars of `parts` as one tensor.
torch::Tensor stacked_scalars(const Tensors& parts, c10::Device device) {
  return parts.empty() ? torch::empty({0}, torch::TensorOptions(torch::kFloat64).device(device)) : torch::stack(parts);
}

/// The sum of `values` from the first to the last, in `order`.
torch::Tensor ordered_sum(const torch::Tensor& values, const std::vector<std::int64_t>& order) {
  if (order.empty()) return torch::zeros({}, values.options());
  const torch::Tensor indices = to_device(torch::tensor(order), values.device());
  return values.index_select(0, indices).cumsum(0)[-1];
}

}  // namespace

void GradientReducer::begin(const StepJob& job) {
  step_ = job.step;
  if (!job.training || job.is_later_part()) return;
  gradients_.clear();
  for (const auto& stage : stages_) {
    if (job.shares.continues)
      stage->gradients().scale(job.shares.earlier);
    else
      stage->gradients().begin_step();
  }
}

void GradientReducer::clear() {
  gradients_.clear();
  ties_pending_ = false;
}

Tensors& GradientReducer::gradients_of(const Stage& stage) {
  const auto [known, is_new] = gradients_.try_emplace(stage.id());
  if (is_new) known->second = stage.gradients().sum_uses();
  return known->second;
}

Tensors GradientReducer::take(const Stage& stage) {
  Tensors gradients = std::move(gradients_of(stage));
  gradients_.erase(stage.id());
  return gradients;
}

// Replaces the gradients with the indices `chosen` by their sums over the replicas. `gradients` are by parameter of
// `stage`.
void GradientReducer::sum_replicas(const Stage& stage, Traffic traffic, const std::vector<std::size_t>& chosen,
                                   Tensors& gradients) {
  Tensors own, like;
  for (const std::size_t i : chosen) {
    own.push_back(gradients[i]);
    like.push_back(stage.gradients().parameters()[i].value);
  }
  Tensors sums = sum_over_replicas(replicas_of(placement_, stage.id(), traffic, step_), own, like);
  for (std::size_t k = 0; k < chosen.size(); ++k) gradients[chosen[k]] = std::move(sums[k]);
}

void GradientReducer::reduce(const Stage& stage) {
  const auto& parameters = stage.gradients().parameters();
  send_uses(tie_route(), stage);
  std::vector<std::size_t> untied;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (!parameters[i].all_uses.is_tied()) untied.push_back(i);
  // gradients_of() may be set already: local_gradients() sums the uses.
  sum_replicas(stage, Traffic::reduce, untied, gradients_of(stage));
  ties_pending_ = true;
}

void GradientReducer::finish_ties() {
  if (!std::exchange(ties_pending_, false)) return;
  const TieRoute route = tie_route();
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

void GradientReducer::divide(double divisor) {
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_)
    for (torch::Tensor& gradient : gradients_of(*stage))
      if (gradient.defined()) gradient = gradient / divisor;  // not in place: copies share it
}

// Every rank sends the squared norm of each of its gradients (of a tied parameter only its owner) to the first rank,
// which sums them in the order in which the network uses the parameters and sends the sum to all.
torch::Tensor GradientReducer::norm(c10::Device device) {
  const torch::NoGradGuard no_grad;
  std::vector<NormPart> parts;
  Tensors squares;
  for (const auto& stage : stages_) {
    const Tensors& gradients = gradients_of(*stage);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ParameterUses& all_uses = stage->gradients().parameters()[i].all_uses;
      if (!gradients[i].defined() || all_uses.owner() != stage->id()) continue;
      parts.push_back({all_uses.list.front().node, static_cast<std::int64_t>(i)});
      squares.push_back(as_real(gradients[i]).norm(2, torch::kFloat64).square());
    }
  }
  DataPlane& endpoint = placement_.endpoint();
  const RankContext& context = placement_.context();
  const auto tag = [&](bool up, Rank rank) {
    return Tag{placement_.pipeline(), Traffic::reduce, step_, placement_.stage_count(), up ? 0 : 1, rank.value()};
  };
  const auto at = [&](Rank rank) { return context.rank_of(rank, placement_.replica()); };
  Message own = message_of(parts);
  own.payloads.push_back({stacked_scalars(squares, device), false});
  endpoint.send(at(Rank(0)), tag(true, placement_.rank()), std::move(own));
  if (placement_.rank() == Rank(0)) {
    std::vector<std::pair<NormPart, std::int64_t>> all;  // with its index in `values`
    Tensors values;
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next()) {
      const Message message = endpoint.receive(at(rank), tag(true, rank), "gradient norms");
      for (const NormPart& part : records_in<NormPart>(message))
        all.emplace_back(part, static_cast<std::int64_t>(all.size()));
      values.push_back(to_device(message.payloads[1].tensor, device));
    }
    std::sort(all.begin(), all.end());
    std::vector<std::int64_t> order;
    for (const auto& [part, index] : all) order.push_back(index);
    const torch::Tensor norm = ordered_sum(torch::cat(values), order).sqrt();
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next())
      endpoint.send(at(rank), tag(false, rank), {{{norm, false}}});
  }
  const Message total = endpoint.receive(at(Rank(0)), tag(false, placement_.rank()), "the gradient norm");
  return to_device(total.payloads.front().tensor, device);
}

}  // namespace penstock
