// The functions of Pipeline for parameter groups, gradient hooks, averages, and copying weights back to a network.
#include <functional>

#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/runtime/partition_network.h"
#include "penstock/runtime/pipeline.h"
#include "penstock/runtime/rank_runner.h"

namespace penstock {

void Pipeline::optimize_with(const ParameterGroups& groups) {
  groups.require_all_used(all_parameters(stages(), options().seed));
  set_optimizer(groups.factory());
}

void Pipeline::add_gradient_hook(const GradientHook& hook) {
  require<ConfigError>(hook != nullptr, "a gradient hook is empty: give a function of a name and a gradient");
  on_each_rank([&](RankRunner& runner) { runner.add_gradient_hook(hook); });
}

void Pipeline::keep_average(double decay) {
  require<ConfigError>(decay >= 0 && decay < 1, "an average of the weights with a decay of ", decay,
                       ": give a number from 0 on and below 1, such as 0.999");
  require_own_values();
  on_each_rank([&](RankRunner& runner) { runner.keep_average(decay); });
  keeps_average_ = true;
}

void Pipeline::use_average(bool average) {
  require<ConfigError>(keeps_average_, "use_average, but no average is kept: call keep_average(decay) before training");
  require_whole_steps("use_average");
  if (average == uses_average_) return;
  on_each_rank([](RankRunner& runner) { runner.swap_averages(); });
  uses_average_ = average;
}

void Pipeline::require_own_values() const {
  require<ConfigError>(!uses_average_,
                       "training while the average replaces the weights: call use_average(false) first");
}

std::map<std::string, torch::Tensor> Pipeline::average_state() {
  const bool before = uses_average_;
  use_average(true);
  std::map<std::string, torch::Tensor> average = state();
  use_average(before);
  return average;
}

void Pipeline::copy_state_to(Cell& network) {
  const std::map<std::string, torch::Tensor> trained = state();
  if (world().is_main()) network.load_state(trained, Cell::Missing::keep);
}

void Pipeline::copy_state_to(torch::nn::Module& network) {
  const std::map<std::string, torch::Tensor> trained = state();
  if (!world().is_main()) return;
  std::map<std::string, torch::Tensor> own;
  for (auto& item : network.named_parameters()) own[item.key()] = item.value();
  for (auto& item : network.named_buffers())
    if (item.value().defined()) own[item.key()] = item.value();
  load_into(own, trained, Cell::Missing::keep);
}

}  // namespace penstock
