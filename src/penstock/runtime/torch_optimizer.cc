#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include "penstock/base/error.h"
#include "penstock/runtime/optimizer.h"

namespace penstock {
namespace {

/// The learning rate of `options`; none for options without one.
std::optional<double> rate_of(const torch::optim::OptimizerOptions& options) {
  try {
    return options.get_lr();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

class TorchOptimizer : public Optimizer {
 public:
  explicit TorchOptimizer(std::shared_ptr<torch::optim::Optimizer> torch) : torch_(std::move(torch)) {
    const std::optional<double> whole = rate_of(torch_->defaults());
    for (const auto& group : torch_->param_groups()) {
      const std::optional<double> own = group.has_options() ? rate_of(group.options()) : std::nullopt;
      proportions_.push_back(own && whole && *whole > 0 ? *own / *whole : 1);
    }
    rate_ = whole;
  }

  void step() override { torch_->step(); }

  void set_learning_rate(double rate) override {
    try {
      for (std::size_t i = 0; i < proportions_.size(); ++i)
        torch_->param_groups()[i].options().set_lr(rate * proportions_[i]);
    } catch (const c10::Error& error) {
      throw ConfigError(
          say("the learning rate of this optimiser cannot be set: override get_lr() and set_lr() of its "
              "options (",
              error.what_without_backtrace(), ")"));
    }
    rate_ = rate;
  }

  std::optional<double> learning_rate() const override { return rate_; }

 private:
  std::shared_ptr<torch::optim::Optimizer> torch_;
  std::vector<double> proportions_;  // ratio of each group's rate to that of the defaults
  std::optional<double> rate_;
};

}  // namespace

std::unique_ptr<Optimizer> step_with(std::shared_ptr<torch::optim::Optimizer> optimizer) {
  require<ConfigError>(optimizer != nullptr, "the function given to optimize_with returned no optimiser");
  require<ConfigError>(!dynamic_cast<const torch::optim::LBFGS*>(optimizer.get()),
                       "torch::optim::LBFGS cannot step a pipeline: it needs a closure that computes the loss of the "
                       "whole network several times within one step, and each stage has an optimiser of its own; take "
                       "one that works on each parameter by itself, such as Adam or SGD");
  return std::make_unique<TorchOptimizer>(std::move(optimizer));
}

std::vector<torch::Tensor> values_of(const std::vector<NamedParameter>& parameters) {
  std::vector<torch::Tensor> values;
  for (const NamedParameter& parameter : parameters) values.push_back(parameter.value);
  return values;
}

}  // namespace penstock
