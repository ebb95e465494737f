// What a program brings to the update of parameters: optimisers, and hooks that change gradients.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "penstock/base/tensor.h"

namespace torch::optim {
class Optimizer;
}

namespace penstock {

/// Receives a parameter's full name and its gradient, and returns the gradient to apply instead, of the same shape and
/// dtype, or an undefined tensor to keep it. Must not change the gradient in place, because replicas may share its
/// memory. Called on the thread of every rank that holds the parameter (each stage that uses a tied one, each replica),
/// concurrently: the result must depend on the arguments alone, so that all ranks apply the same gradient.
using GradientHook = std::function<torch::Tensor(const std::string& name, const torch::Tensor& gradient)>;

/// A parameter and its full name, e.g. "layer1.weight". Its gradient is in its .grad() when a step is taken.
struct NamedParameter {
  std::string name;
  torch::Tensor value;
};

/// What an optimiser keeps from step to step, by parameter: "layer1.weight/momentum". The names do not depend on which
/// parameters share an optimiser, so that a state fits every partition.
using OptimizerState = std::map<std::string, torch::Tensor>;

/// Updates the parameters that it was made for. One exists per stage, used on the thread of that stage's rank.
class Optimizer {
 public:
  virtual ~Optimizer() = default;
  /// Updates every parameter whose gradient is defined.
  virtual void step() = 0;
  virtual void set_learning_rate(double rate) = 0;
  /// The rate of its next step. None where unknown: ParameterGroups then passes on the rate that is set.
  virtual std::optional<double> learning_rate() const { return std::nullopt; }
  /// Whether it computes each number of a parameter from that number, its gradient and its state only, with the same
  /// bits for some rows of a parameter as for all; then state() has tensors of the parameter's shape and single numbers.
  /// Required by PipelineOptions::zero.
  virtual bool is_elementwise() const { return false; }

  /// Its state, in tensors that may share its memory: copy them before the next step. Options, as the learning rate,
  /// are no part of it. Throws ConfigError unless overridden: a training with such an optimiser cannot be resumed.
  virtual OptimizerState state() const;
  /// Copies the state of its own parameters from `state`, which may hold others' too. Its next step is then that of the
  /// optimiser from which the state is, and state() has all that was loaded, so that nothing is lost unnoticed. Throws
  /// ConfigError, and changes nothing, if a tensor is missing or has another shape or dtype; and unless overridden.
  virtual void load_state(const OptimizerState& state);
};

/// state.at("parameter/slot"), whose shape and dtype are those of `like`. Throws ConfigError otherwise.
const torch::Tensor& state_of(const OptimizerState& state, const std::string& parameter, std::string_view slot,
                              const torch::Tensor& like);

/// Makes the optimiser of one stage. Called on the thread of the stage's rank, with at least one parameter.
using OptimizerFactory = std::function<std::unique_ptr<Optimizer>(const std::vector<NamedParameter>&)>;

/// An Optimizer from an optimiser of torch::optim, or one derived from torch::optim::Optimizer, that updates each
/// parameter independently. set_learning_rate() sets the rate of its defaults; its own parameter groups keep their
/// proportion to it. Throws ConfigError for LBFGS, which evaluates the loss of the whole network several times per
/// step. Its state() needs the names of the parameters; it is what the optimiser's own save() and load() write and read
/// of a parameter, where that consists of tensors and numbers: "layer1.weight/exp_avg", "layer1.weight/step.int".
std::unique_ptr<Optimizer> step_with(std::shared_ptr<torch::optim::Optimizer> optimizer,
                                     const std::vector<NamedParameter>& named = {});

std::vector<torch::Tensor> values_of(const std::vector<NamedParameter>& parameters);

/// An OptimizerFactory from a function of the parameters: `[](auto parameters) { return torch::optim::SGD(parameters,
/// 1e-2); }`. The function returns an optimiser, or a std::unique_ptr or std::shared_ptr to one.
template <class Make>
requires std::invocable<Make&, std::vector<torch::Tensor>> OptimizerFactory optimizer_factory(Make make) {
  return [make](const std::vector<NamedParameter>& named) mutable {
    using Made = std::invoke_result_t<Make&, std::vector<torch::Tensor>>;
    if constexpr (std::derived_from<Made, torch::optim::Optimizer>)
      return step_with(std::shared_ptr<Made>(new Made(make(values_of(named)))), named);
    else
      return step_with(make(values_of(named)), named);
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
