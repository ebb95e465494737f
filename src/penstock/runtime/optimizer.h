// The optimiser of a stage's parameters.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "penstock/base/tensor.h"

namespace torch::optim {
class Optimizer;
}

namespace penstock {

/// A parameter and its full name, e.g. "layer1.weight". Its gradient is in its .grad() when a step is taken.
struct NamedParameter {
  std::string name;
  torch::Tensor value;
};

/// Updates the parameters that it was made for. One exists per stage, used on the thread of that stage's rank.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates every parameter whose gradient is defined.
  virtual void step() = 0;
  virtual void set_learning_rate(double rate) = 0;
  /// The rate of its next step. None where unknown: ParameterGroups then passes on the rate that is set.
  virtual std::optional<double> learning_rate() const { return std::nullopt; }
};

/// Makes the optimiser of one stage. Called on the thread of the stage's rank, with at least one parameter.
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(const std::vector<NamedParameter>&)>;

/// An Optimizer from an optimiser of torch::optim, or one derived from torch::optim::Optimizer, that updates each
/// parameter independently. set_learning_rate() sets the rate of its defaults; its own parameter groups keep their
/// proportion to it. Throws ConfigError for LBFGS, which evaluates the loss of the whole network several times per
/// step.
std::unique_ptr<Optimizer> step_with(std::shared_ptr<torch::optim::Optimizer> optimizer);

std::vector<torch::Tensor> values_of(const std::vector<NamedParameter>& parameters);

/// An OptimizerFactory from a function of the parameters: `[](auto parameters) { return torch::optim::SGD(parameters,
/// 1e-2); }`. The function returns an optimiser, or a std::unique_ptr or std::shared_ptr to one.
template <class Make>
requires std::invocable<Make&, std::vector<torch::Tensor>> OptimizerFactory optimizer_factory(Make make) {
  return [make](const std::vector<NamedParameter>& named) mutable {
    using Made = std::invoke_result_t<Make&, std::vector<torch::Tensor>>;
    if constexpr (std::derived_from<Made, torch::optim::Optimizer>)
      return step_with(std::shared_ptr<Made>(new Made(make(values_of(named)))));
    else
      return step_with(make(values_of(named)));
  };
}

/// The same, which returns an OptimizerFactory unchanged.
template <class Make>
OptimizerFactory as_optimizer_factory(Make make) {
  if constexpr (std::same_as<Make, OptimizerFactory>)
    return make;
  else
    return optimizer_factory(std::move(make));
}

}  // namespace penstock
