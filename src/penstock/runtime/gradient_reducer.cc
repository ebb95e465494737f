#include "penstock/runtime/gradient_reducer.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <string_view>

#include "penstock/runtime/reduce.h"
#include "penstock/transport/records.h"

namespace penstock {
namespace {

/// The squared norm of the gradient of one parameter. Ordered as the network first uses the parameters.
struct SquaredNorm {
  static constexpr std::string_view record_name = "SquaredNorm";

  std::int64_t node = 0;       // the first that uses the parameter
  std::int64_t parameter = 0;  // its number among those of the stage
  double square = 0;

  friend auto operator<=>(const SquaredNorm&, const SquaredNorm&) = default;
};

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
double GradientReducer::norm() {
  std::vector<SquaredNorm> squares;
  for (const auto& stage : stages_) {
    const Tensors& gradients = gradients_of(*stage);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ParameterUses& all_uses = stage->gradients().parameters()[i].all_uses;
      if (!gradients[i].defined() || all_uses.owner() != stage->id()) continue;
      const double norm = gradients[i].norm(2, torch::kFloat64).item<double>();
      squares.push_back({all_uses.list.front().node, static_cast<std::int64_t>(i), norm * norm});
    }
  }
  Transport& endpoint = placement_.endpoint();
  const RankContext& context = placement_.context();
  const auto tag = [&](bool up, Rank rank) {
    return Tag{placement_.pipeline(), Traffic::reduce, step_, placement_.stage_count(), up ? 0 : 1, rank.value()};
  };
  const auto at = [&](Rank rank) { return context.rank_of(rank, placement_.replica()); };
  endpoint.send(at(Rank(0)), tag(true, placement_.rank()), message_of(squares));
  if (placement_.rank() == Rank(0)) {
    std::vector<SquaredNorm> all;
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next()) {
      const auto of_rank = records_in<SquaredNorm>(endpoint.receive(at(rank), tag(true, rank), "gradient norms"));
      all.insert(all.end(), of_rank.begin(), of_rank.end());
    }
    std::sort(all.begin(), all.end());
    double total = 0;
    for (const SquaredNorm& each : all) total += each.square;
    for (Rank rank(0); rank.value() < context.stages; rank = rank.next())
      endpoint.send(at(rank), tag(false, rank), message_of(total));
  }
  const Message total = endpoint.receive(at(Rank(0)), tag(false, placement_.rank()), "the gradient norm");
  return std::sqrt(record_in<double>(total));
}

}  // namespace penstock
