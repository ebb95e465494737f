// RankRunner: gradient accumulation over calls, gradient hooks, and averages of weights.
#include "penstock/base/error.h"
#include "penstock/runtime/rank_runner.h"

namespace penstock {

// Under Reduction::mean, the gradients of earlier calls are scaled down as further samples are added.
void RankRunner::continue_gradients(Stage& stage) {
  hooked_.clear();
  gradients_.erase(stage.id());
  if (job_->shares.continues)
    stage.gradients().scale(job_->shares.earlier);
  else
    stage.gradients().begin_step();
}

void RankRunner::hook_gradients(Stage& stage) {
  if (gradient_hooks_.empty() || !hooked_.insert(stage.id()).second) return;
  const torch::NoGradGuard no_grad;
  Tensors& gradients = gradients_of(stage);
  const auto& parameters = stage.gradients().parameters();
  for (std::size_t i = 0; i < gradients.size(); ++i)
    for (const GradientHook& hook : gradient_hooks_) {
      if (!gradients[i].defined()) continue;
      const double scale = scaler_.scale();  // a power of two
      torch::Tensor changed = hook(parameters[i].name, scale == 1 ? gradients[i] : gradients[i] / scale);
      if (!changed.defined()) continue;
      require<ConfigError>(changed.sizes() == gradients[i].sizes() && changed.dtype() == gradients[i].dtype(),
                           "a gradient hook made ", changed.dtype().name(), " of shape ", changed.sizes(), " of '",
                           parameters[i].name, "', whose gradient is ", gradients[i].dtype().name(), " of shape ",
                           gradients[i].sizes(), ": return a gradient of the same shape and dtype");
      gradients[i] = scale == 1 ? changed : changed * scale;
    }
}

void RankRunner::keep_average(double decay) {
  const torch::NoGradGuard no_grad;
  average_decay_ = decay;
  averages_.clear();
  for (const auto& stage : stages_)
    for (const TrainedParameter& parameter : stage->gradients().parameters())
      averages_[stage->id()][parameter.name] = parameter.value.detach().clone();
}

void RankRunner::add_to_average(const Stage& stage) {
  if (!average_decay_) return;
  const torch::NoGradGuard no_grad;
  auto& averages = averages_[stage.id()];
  for (const TrainedParameter& parameter : stage.gradients().parameters()) {
    const auto [average, is_new] = averages.try_emplace(parameter.name);
    if (is_new)  // it was frozen when averaging began
      average->second = parameter.value.detach().clone();
    else
      average->second.lerp_(parameter.value, 1 - *average_decay_);
  }
}

void RankRunner::swap_averages() {
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
