// RankRunner: the norm of all gradients, clipping, and the optimisers' step.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "penstock/runtime/rank_runner.h"

namespace penstock {
namespace {

Message message_with(const std::vector<double>& numbers) {
  return {{{torch::tensor(numbers, torch::kFloat64), false}}, 0, 0};
}

}  // namespace

// Runs once for all stages of a rank. Every rank sends the squared norm of each of its gradients (of a tied parameter
// only its owner) to the first rank, which sums them in the order in which the network uses the parameters and sends
// the sum to all. The bits do not depend on the partition.
void RankRunner::measure_norm() {
  if (gradient_norm_) return;
  finish_ties();
  for (const auto& stage : stages_) hook_gradients(*stage);
  std::vector<double> squares;  // three per gradient: the first node that uses the parameter, its index, the square
  for (const auto& stage : stages_) {
    const Tensors& gradients = gradients_of(*stage);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ParameterUses& all_uses = stage->gradients().parameters()[i].all_uses;
      if (!gradients[i].defined() || all_uses.owner() != stage->id()) continue;
      const double norm = gradients[i].norm(2, torch::kFloat64).item<double>();
      squares.insert(squares.end(),
                     {static_cast<double>(all_uses.list.front().node), static_cast<double>(i), norm * norm});
    }
  }
  const auto stages = static_cast<std::int32_t>(staged_.parts.size());
  const auto tag = [&](bool up, Rank rank) {
    return Tag{setting_.pipeline, Traffic::reduce, job_->step, stages, up ? 0 : 1, rank.value()};
  };
  const auto at = [&](Rank rank) { return context().rank_of(rank, placement_.replica()); };
  endpoint().send(at(Rank(0)), tag(true, placement_.rank()), message_with(squares));
  if (placement_.rank() == Rank(0)) {
    std::vector<std::array<double, 3>> received;
    for (Rank rank(0); rank.value() < context().stages; rank = rank.next()) {
      const Message message = endpoint().receive(at(rank), tag(true, rank), "gradient norms");
      const auto numbers = message.payloads.front().tensor.accessor<double, 1>();
      for (std::int64_t i = 0; i < numbers.size(0); i += 3)
        received.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
    }
    std::sort(received.begin(), received.end());
    double total = 0;
    for (const auto& entry : received) total += entry[2];
    for (Rank rank(0); rank.value() < context().stages; rank = rank.next())
      endpoint().send(at(rank), tag(false, rank), message_with({total}));
  }
  const Message total = endpoint().receive(at(Rank(0)), tag(false, placement_.rank()), "the gradient norm");
  gradient_norm_ = std::sqrt(total.payloads.front().tensor.item<double>()) / scaler_.scale();
  job_->state->set_gradient_norm(*gradient_norm_);
}

void RankRunner::update(Stage& stage) {
  finish_ties();
  ++updates_[stage.id()];
  const auto [first, end] = optimizers_.equal_range(stage.id());
  if (first == end) return;
  hook_gradients(stage);
  const Tensors gradients = std::move(gradients_of(stage));
  gradients_.erase(stage.id());
  if (skips_update()) return;
  // As torch's clip_grad_norm_ does, after division by the loss scale: a norm of NaN makes all gradients NaN.
  constexpr double small = 1e-6;
  const double clip = setting_.clip_norm ? *setting_.clip_norm / (*gradient_norm_ + small) : 1;
  const double unscale = 1 / scaler_.scale();  // a power of two
  const auto& parameters = stage.gradients().parameters();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    torch::Tensor gradient = gradients[i], value = parameters[i].value;
    // Not in place, because local_gradients() may have returned the tensors.
    if (gradient.defined() && unscale != 1) gradient = gradient.mul(unscale);
    if (gradient.defined() && !(clip >= 1)) gradient = gradient.mul(clip);
    value.mutable_grad() = gradient;
  }
  is_updating_ = true;
  for (auto optimizer = first; optimizer != end; ++optimizer) optimizer->second->step();
  add_to_average(stage);
  is_updating_ = false;
  // Frees the clipped or unscaled copies, whose memory is reused in the next step.
  for (const auto& parameter : parameters) torch::Tensor(parameter.value).mutable_grad().reset();
}

bool RankRunner::skips_update() const { return scaler_.is_dynamic() && !std::isfinite(*gradient_norm_); }

void RankRunner::end_update() {
  if (!scaler_.is_dynamic()) return;
  if (skips_update()) job_->state->set_update_skipped();
  scaler_.end_step(std::isfinite(*gradient_norm_));
}

}  // namespace penstock
