#include "penstock/runtime/stage_history.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace penstock {
namespace {

/// At most two steps are submitted before the first of them has ended on all ranks of the process, and a rank's process
/// has the loss of a step before that step ends. So a rank is at most two steps ahead of the slowest one (only where
/// nothing before it trains), and may have begun the next.
constexpr std::size_t most_buffer_copies = 3;

}  // namespace

void StageHistory::before_forward(const Stage& stage, std::uint64_t step) {
  if (!buffers_.empty() && buffers_.back().step >= completed_) return;
  const torch::NoGradGuard no_grad;
  Copies copies{step};
  for (const Stage::Held& held : stage.state()) {
    if (!held.is_buffer()) continue;
    // Constant buffers, such as masks, share one copy. On other devices a comparison would wait for the device.
    const torch::Tensor* before = buffers_.empty() ? nullptr : &buffers_.back().values.at(held.name);
    const bool is_same = before && held.value.is_cpu() && before->equal(held.value);
    copies.values.emplace(held.name, is_same ? *before : held.value.detach().clone());
  }
  buffers_.push_back(std::move(copies));
  if (buffers_.size() > most_buffer_copies) buffers_.pop_front();
}

void StageHistory::before_update(const Stage& stage, std::uint64_t step) {
  if (stage.gradients().parameters().empty()) return;
  oldest_ = keeps_parameters_ ? after_change_ : step + 1;
  after_change_ = step + 1;
  if (!keeps_parameters_) return;
  const torch::NoGradGuard no_grad;
  for (const TrainedParameter& parameter : stage.gradients().parameters()) {
    const auto [copy, is_new] = parameters_.values.try_emplace(parameter.name);
    if (is_new)
      copy->second = parameter.value.detach().clone();
    else
      copy->second.copy_(parameter.value);
  }
  parameters_.step = step;
}

void StageHistory::undo_forward(const Stage& stage) {
  if (buffers_.empty() || buffers_.back().step < completed_) return;
  const torch::NoGradGuard no_grad;
  for (const Stage::Held& held : stage.state())
    if (held.is_buffer()) torch::Tensor(held.value).copy_(buffers_.back().values.at(held.name));
  buffers_.pop_back();
}

void StageHistory::begin_at(std::uint64_t step) {
  completed_ = oldest_ = after_change_ = step;
  parameters_ = {};
  buffers_.clear();
}

void StageHistory::forget_parameters() {
  parameters_ = {};
  oldest_ = after_change_;
}

const torch::Tensor& StageHistory::value_before(std::uint64_t step, const Stage::Held& held) const {
  if (held.is_buffer()) {
    for (const Copies& copies : buffers_)
      if (copies.step >= step) return copies.values.at(held.name);
  } else if (parameters_.step >= step) {
    const auto copy = parameters_.values.find(held.name);
    if (copy != parameters_.values.end()) return copy->second;
  }
  return held.value;
}

void StageHistories::undo_forward(const RankStages& stages) {
  for (const auto& stage : stages) of(stage->id()).undo_forward(*stage);
}

void StageHistories::begin_at(std::uint64_t step) {
  for (auto& [stage, history] : histories_) history.begin_at(step);
}

void StageHistories::forget_parameters() {
  for (auto& [stage, history] : histories_) history.forget_parameters();
}

StageHistories::KnownSteps StageHistories::known_steps() const {
  KnownSteps known{std::numeric_limits<std::uint64_t>::max(), 0};
  for (const auto& [stage, history] : histories_) {
    known.completed = std::min(known.completed, history.completed());
    known.oldest = std::max(known.oldest, history.oldest());
  }
  return known;
}

}  // namespace penstock
