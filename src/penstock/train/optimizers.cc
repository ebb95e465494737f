#include "penstock/train/optimizers.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

using TensorList = std::vector<torch::Tensor>;

void check_not_negative(const char* what, double value) {
  require<ConfigError>(value >= 0, "the ", what, " is ", value, ", but it cannot be below 0");
}

void check_rate(double rate) { check_not_negative("learning rate", rate); }

/// Indices of the parameters that have a gradient. The others are not updated, as in torch::optim.
std::vector<std::size_t> with_gradient(const TensorList& parameters) {
  std::vector<std::size_t> present;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].grad().defined()) present.push_back(i);
  return present;
}

/// The fused kernels ignore strides, so a gradient must have its parameter's memory layout.
TensorList gradients_of(const TensorList& parameters) {
  TensorList gradients;
  for (const torch::Tensor& parameter : parameters) {
    const torch::Tensor& gradient = parameter.grad();
    const bool fits = gradient.strides() == parameter.strides() && gradient.scalar_type() == parameter.scalar_type();
    gradients.push_back(fits ? gradient : torch::empty_like(parameter).copy_(gradient));
  }
  return gradients;
}

TensorList chosen(const TensorList& all, const std::vector<std::size_t>& which) {
  TensorList some;
  for (std::size_t i : which) some.push_back(all[i]);
  return some;
}

TensorList dense_values_of(const std::vector<NamedParameter>& named) {
  TensorList values;
  for (const auto& [name, value] : named) {
    require<ConfigError>(value.is_non_overlapping_and_dense(), "parameter '", name, "' of shape ", value.sizes(),
                         " and strides ", value.strides(),
                         " is not dense in memory: make it contiguous, or use an optimiser of torch::optim");
    values.push_back(value);
  }
  return values;
}

TensorList zeros_like(const TensorList& parameters) {
  TensorList zeros;
  for (const torch::Tensor& parameter : parameters) zeros.push_back(torch::zeros_like(parameter));
  return zeros;
}

std::vector<std::string> names_of(const std::vector<NamedParameter>& named) {
  std::vector<std::string> names;
  for (const NamedParameter& parameter : named) names.push_back(parameter.name);
  return names;
}

/// Tensors of an optimiser, one for each parameter.
struct StateSlot {
  const char* name;
  const TensorList& tensors;
};

OptimizerState state_in(const std::vector<std::string>& names, const std::vector<StateSlot>& slots) {
  OptimizerState state;
  for (const StateSlot& slot : slots)
    for (std::size_t i = 0; i < slot.tensors.size(); ++i) state[say(names[i], "/", slot.name)] = slot.tensors[i];
  return state;
}

void load_state_into(const std::vector<std::string>& names, const std::vector<StateSlot>& slots,
                     const OptimizerState& state) {
  const torch::NoGradGuard no_grad;
  for (const bool copies : {false, true})  // first only checks
    for (const StateSlot& slot : slots)
      for (std::size_t i = 0; i < slot.tensors.size(); ++i) {
        const torch::Tensor& value = state_of(state, names[i], slot.name, slot.tensors[i]);
        if (copies) torch::Tensor(slot.tensors[i]).copy_(value);
      }
}

/// The parameters, learning rate and state of an optimiser with options of type `Options`.
template <class Options>
class FusedOptimizer : public Optimizer {
 public:
  FusedOptimizer(const std::vector<NamedParameter>& named, const Options& options)
      : names_(names_of(named)), parameters_(dense_values_of(named)), options_(options) {}

  void set_learning_rate(double rate) override {
    check_rate(rate);
    options_.learning_rate = rate;
  }
  std::optional<double> learning_rate() const override { return options_.learning_rate; }
  bool is_elementwise() const override { return true; }

  OptimizerState state() const override { return state_in(names_, slots()); }
  void load_state(const OptimizerState& state) override { load_state_into(names_, slots(), state); }

 protected:
  virtual std::vector<StateSlot> slots() const = 0;

  std::vector<std::string> names_;
  TensorList parameters_;
  Options options_;
};

class Sgd : public FusedOptimizer<SgdOptions> {
 public:
  Sgd(const std::vector<NamedParameter>& named, const SgdOptions& options) : FusedOptimizer(named, options) {
    // With momentum 0 the kernel takes no buffers. Otherwise v starts as the first gradient: 0 * momentum + g.
    if (options_.momentum != 0) momenta_ = zeros_like(parameters_);
  }

  void step() override {
    const torch::NoGradGuard no_grad;
    const auto present = with_gradient(parameters_);
    if (present.empty()) return;
    TensorList parameters = chosen(parameters_, present), gradients = gradients_of(parameters);
    TensorList momenta = momenta_.empty() ? TensorList{} : chosen(momenta_, present);
    at::_fused_sgd_(parameters, gradients, momenta, options_.weight_decay, options_.momentum, options_.learning_rate,
                    /*dampening=*/0, options_.nesterov, /*maximize=*/false,
                    /*is_first_step=*/false);
  }

 private:
  std::vector<StateSlot> slots() const override { return {{"momentum", momenta_}}; }

  TensorList momenta_;
};

class Adam : public FusedOptimizer<AdamOptions> {
 public:
  enum class Decay { in_gradient, of_parameter };

  Adam(const std::vector<NamedParameter>& named, const AdamOptions& options, Decay decay)
      : FusedOptimizer(named, options),
        averages_(zeros_like(parameters_)),
        squares_(zeros_like(parameters_)),
        decay_(decay) {
    for (const torch::Tensor& parameter : parameters_)
      steps_.push_back(torch::zeros({}, parameter.options().dtype(torch::kFloat32)));
  }

  void step() override {
    const torch::NoGradGuard no_grad;
    const auto present = with_gradient(parameters_);
    if (present.empty()) return;
    TensorList parameters = chosen(parameters_, present), gradients = gradients_of(parameters);
    TensorList averages = chosen(averages_, present), squares = chosen(squares_, present);
    TensorList steps = chosen(steps_, present);
    for (torch::Tensor& step : steps) step.add_(1);
    const auto step_with = [&](auto kernel) {
      kernel(parameters, gradients, averages, squares, /*max_exp_avg_sqs=*/TensorList{}, steps, options_.learning_rate,
             options_.beta1, options_.beta2, options_.weight_decay, options_.epsilon, /*amsgrad=*/false,
             /*maximize=*/false);
    };
    if (decay_ == Decay::in_gradient)
      step_with([](auto&&... all) { at::_fused_adam_(all...); });
    else
      step_with([](auto&&... all) { at::_fused_adamw_(all...); });
  }

 private:
  std::vector<StateSlot> slots() const override {
    return {{"exp_avg", averages_}, {"exp_avg_sq", squares_}, {"step", steps_}};
  }

  TensorList averages_, squares_, steps_;
  Decay decay_;
};

void check(const AdamOptions& options) {
  check_rate(options.learning_rate);
  for (double beta : {options.beta1, options.beta2})
    require<ConfigError>(beta >= 0 && beta < 1, "Adam's beta is ", beta, ", but it lies in [0, 1)");
  check_not_negative("epsilon", options.epsilon);
  check_not_negative("weight decay", options.weight_decay);
}

OptimizerFactory adam_factory(const AdamOptions& options, Adam::Decay decay) {
  check(options);
  return [options, decay](const std::vector<NamedParameter>& named) {
    return std::make_unique<Adam>(named, options, decay);
  };
}

}  // namespace

OptimizerFactory sgd(const SgdOptions& options) {
  check_rate(options.learning_rate);
  check_not_negative("momentum", options.momentum);
  check_not_negative("weight decay", options.weight_decay);
  require<ConfigError>(!options.nesterov || options.momentum > 0, "nesterov needs a momentum above 0");
  return [options](const std::vector<NamedParameter>& named) { return std::make_unique<Sgd>(named, options); };
}

OptimizerFactory adam(const AdamOptions& options) { return adam_factory(options, Adam::Decay::in_gradient); }
OptimizerFactory adamw(const AdamOptions& options) { return adam_factory(options, Adam::Decay::of_parameter); }

}  // namespace penstock
