#include "penstock/layers/split_layer.h"

#include <torch/autograd.h>

#include "penstock/base/error.h"
#include "penstock/layers/thread_scopes.h"

namespace penstock::layers {
namespace {

struct SplitNode : torch::autograd::Function<SplitNode> {
  /// The weight is an argument so that the output requires a gradient even if the input does not.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor&, const Saved& saved) {
    context->saved_data["saved"] = c10::IValue::make_capsule(saved);
    const torch::Tensor used = saved->layer->as_computed(input);
    // Detached, so that W does not keep the graph before this node alive.
    saved->input = used.detach();
    saved->version = used._version();
    saved->input_type = input.scalar_type();
    return saved->layer->run(used);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& output_gradients) {
    auto saved = c10::static_intrusive_pointer_cast<SavedForWeights>(context->saved_data["saved"].toCapsule());
    Tensors gradients(3);
    if (!output_gradients.front().defined()) return gradients;
    saved->output_gradient = saved->layer->arranged(output_gradients.front());
    if (context->needs_input_grad(0)) gradients.front() = saved->layer->input_gradient(*saved);
    if (saved->weights_now) saved->layer->weight_gradients({&saved, 1});
    return gradients;
  }
};

std::size_t use_of(const Gradients& gradients, const torch::Tensor& parameter) {
  const auto use = gradients.use_of(parameter);
  require<InternalError>(use.has_value(), "a layer's weight is not among its stage's parameters");
  return *use;
}

}  // namespace

SplitLayer::SplitLayer(LayerCall call, WeightAndBias parameters, Gradients& gradients)
    : call_(std::move(call)),
      parameters_(std::move(parameters)),
      gradients_(gradients),
      weight_use_(use_of(gradients, parameters_.weight)) {
  if (parameters_.bias.defined()) bias_use_ = gradients.use_of(parameters_.bias);
  gradients_.set_split(weight_use_);
  if (bias_use_) gradients_.set_split(*bias_use_);
}

torch::Tensor SplitLayer::forward(const torch::Tensor& input, const Saved& saved) const {
  saved->layer = this;
  return SplitNode::apply(input, weight(), saved);
}

torch::Tensor SplitLayer::input_gradient(const SavedForWeights& saved) const {
  require_unchanged(saved);
  const torch::Tensor gradient = input_gradient_of(saved);
  return gradient.defined() ? gradient.to(saved.input_type) : gradient;
}

torch::Tensor SplitLayer::as_computed(const torch::Tensor& input) const {
  const Autocast autocast = Autocast::current(input.device().type());
  const bool casts = autocast.enabled && follows_autocast() && input.scalar_type() == torch::kFloat32;
  return arranged(casts ? input.to(autocast.type) : input);
}

torch::Tensor SplitLayer::run(const torch::Tensor& input) const {
  // Without autocast an input of another type is an error, as in torch.
  const bool is_cast = Autocast::current(input.device().type()).enabled;
  const WeightAndBias& parameters = is_cast ? parameters_for(input) : parameters_;
  const bool is_plain = parameters.weight.is_same(weight()) && !has_own_kernel(input);
  return is_plain ? call_.layer.forward({input}).front() : compute(input, parameters);
}

// The parameters are cast again, because those that a training step cast may be older than the last update.
torch::Tensor SplitLayer::run_without_graph(const torch::Tensor& input) const {
  const torch::Tensor used = as_computed(input);
  if (!has_own_kernel(used)) return call_.layer.forward({input}).front();
  if (!follows_autocast() || used.scalar_type() == weight().scalar_type()) return compute(used, parameters_);
  const auto cast = [&](const torch::Tensor& value) { return value.defined() ? value.to(used.scalar_type()) : value; };
  return compute(used, {cast(parameters_.weight), cast(parameters_.bias)});
}

const WeightAndBias& SplitLayer::parameters_for(const torch::Tensor& tensor) const {
  const c10::ScalarType type = tensor.scalar_type();
  if (!follows_autocast() || type == weight().scalar_type()) return parameters_;
  if (cast_in_step_ != gradients_.step() || !cast_.weight.defined() || cast_.weight.scalar_type() != type) {
    const Uncounted of_no_micro_batch;
    const auto cast = [type](const torch::Tensor& value) { return value.defined() ? value.detach().to(type) : value; };
    cast_ = {cast(parameters_.weight), cast(parameters_.bias)};
    cast_in_step_ = gradients_.step();
  }
  return cast_;
}

void SplitLayer::weight_gradients(std::span<const Saved> saved) const {
  const torch::NoGradGuard no_grad;
  Tensors inputs, output_gradients;
  for (const Saved& one : saved) {
    if (!one->output_gradient.defined()) continue;
    require_unchanged(*one);
    inputs.push_back(std::move(one->input));
    output_gradients.push_back(std::move(one->output_gradient));
    one->clear();
  }
  if (!inputs.empty()) add_weight_gradients(inputs, output_gradients);
  gradients_.end_weight_grad(weight_use_);
  if (bias_use_) gradients_.end_weight_grad(*bias_use_);
}

void SplitLayer::require_unchanged(const SavedForWeights& saved) const {
  const auto version = static_cast<std::int64_t>(saved.input._version());
  require<ScheduleError>(version == saved.version, "the input of layer '", call_.name,
                         "' was changed in place after the ", "layer had read it (version ", saved.version, ", then ",
                         version,
                         "), and its backward pass needs the old value: use a layer that does not work in place");
}

}  // namespace penstock::layers
