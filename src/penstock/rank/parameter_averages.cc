#include "penstock/rank/parameter_averages.h"

namespace penstock {

void ParameterAverages::keep(double decay) {
  const torch::NoGradGuard no_grad;
  decay_ = decay;
  averages_.clear();
  for (const auto& stage : stages_)
    for (const TrainedParameter& parameter : stage->gradients().parameters())
      averages_[stage->id()][parameter.name] = parameter.value.detach().clone();
}

void ParameterAverages::add(const Stage& stage) {
  if (!decay_) return;
  const torch::NoGradGuard no_grad;
  auto& averages = averages_[stage.id()];
  for (const TrainedParameter& parameter : stage.gradients().parameters()) {
    const auto [average, is_new] = averages.try_emplace(parameter.name);
    if (is_new)  // it was frozen when averaging began
      average->second = parameter.value.detach().clone();
    else
      average->second.lerp_(parameter.value, 1 - *decay_);
  }
}

// A frozen parameter may have an average, of the time before it was frozen.
void ParameterAverages::load(const Stage& stage, const std::map<std::string, torch::Tensor>& averages) {
  if (!decay_) return;
  const torch::NoGradGuard no_grad;
  auto& own = averages_[stage.id()];
  own.clear();
  for (const Stage::Held& held : stage.state()) {
    if (held.is_buffer()) continue;
    const auto found = averages.find(held.name);
    if (found == averages.end() && !held.value.requires_grad()) continue;
    const torch::Tensor& value = found == averages.end() ? held.value : found->second;
    own[held.name] = value.detach().to(held.value.device(), false, /*copy=*/true);
  }
}

void ParameterAverages::swap() {
  const torch::NoGradGuard no_grad;
  for (const auto& stage : stages_) {
    auto& averages = averages_[stage->id()];
    for (const Stage::Held& held : stage->state()) {
      const auto average = averages.find(held.name);
      if (average == averages.end()) continue;
      const torch::Tensor value = held.value.detach().clone();
      torch::Tensor(held.value).copy_(average->second);
      average->second = value;
    }
    stage->gradients().begin_step();  // invalidates the casts of weights, which are cached for one step
  }
}

}  // namespace penstock
