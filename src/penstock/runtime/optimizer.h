// What steps a stage's parameters.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include <torch/optim/optimizer.h>

namespace penstock {

/// A parameter and its full name, e.g. "layer1.weight". Its gradient is in its .grad() when a step is taken.
struct NamedParameter {
  std::string name;
  torch::Tensor value;
};

/// Steps the parameters it was made for. One exists per stage, on that stage's rank.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual void step() = 0;
  virtual void set_learning_rate(double rate) = 0;
};

/// Makes the optimiser of one stage; called on the stage's rank, never without parameters.
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(const std::vector<NamedParameter>&)>;

/// Any torch::optim optimiser that works on each parameter by itself.
template <std::derived_from<torch::optim::Optimizer> Torch>
class TorchOptimizer : public Optimizer {
 public:
  template <class Make>
  TorchOptimizer(Make& make, std::vector<torch::Tensor> parameters) : torch_(make(std::move(parameters))) {}

  void step() override { torch_.step(); }
  void set_learning_rate(double rate) override {
    for (auto& group : torch_.param_groups()) group.options().set_lr(rate);
  }

 private:
  Torch torch_;
};

/// From a function of the parameters: `[](auto parameters) { return torch::optim::SGD(parameters, 1e-2); }`.
template <class Make>
  requires std::derived_from<std::invoke_result_t<Make&, std::vector<torch::Tensor>>, torch::optim::Optimizer>
OptimizerFactory optimizer_factory(Make make) {
  return [make](const std::vector<NamedParameter>& named) mutable -> std::unique_ptr<Optimizer> {
    std::vector<torch::Tensor> parameters;
    for (const NamedParameter& parameter : named) parameters.push_back(parameter.value);
    using Torch = std::invoke_result_t<Make&, std::vector<torch::Tensor>>;
    return std::make_unique<TorchOptimizer<Torch>>(make, std::move(parameters));
  };
}

}  // namespace penstock
