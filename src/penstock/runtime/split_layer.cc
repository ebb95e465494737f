#include "penstock/runtime/split_layer.h"

#include <torch/autograd.h>

#include "penstock/base/error.h"
#include "penstock/runtime/split_layers.h"

namespace penstock {
namespace {

struct SplitNode : torch::autograd::Function<SplitNode> {
  /// `weight` is an argument so that the output wants a gradient even where the input does not.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor& weight, const SplitLayer* layer, const BuiltLayer* built,
                               const Kept& kept) {
    static_cast<void>(weight);
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    context->saved_data["layer"] = reinterpret_cast<std::int64_t>(layer);
    // Detached: W must not keep alive the graph that led here.
    kept->input = input.detach();
    kept->version = input._version();
    return built->forward({input}).front();
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& output_gradients) {
    auto kept = c10::static_intrusive_pointer_cast<KeptForWeights>(context->saved_data["kept"].toCapsule());
    const auto* layer = reinterpret_cast<const SplitLayer*>(context->saved_data["layer"].toInt());
    Tensors gradients(5);
    if (!output_gradients.front().defined()) return gradients;
    require<PlanError>(kept->input._version() == kept->version,
                       "a value was changed in place after a layer had used it: use a layer that works out of place");
    kept->output_gradient = output_gradients.front();
    if (context->needs_input_grad(0)) gradients[0] = layer->input_gradient(*kept);
    if (kept->weights_now) {
      layer->weight_gradients({&kept, 1});
      kept->input.reset();
      kept->output_gradient.reset();
    }
    return gradients;
  }
};

std::size_t use_of(const Gradients& gradients, const torch::Tensor& parameter) {
  const auto use = gradients.use_of(parameter);
  require<InternalError>(use.has_value(), "a layer's weight is not among its stage's parameters");
  return *use;
}

}  // namespace

SplitLayer::SplitLayer(const BuiltLayer& layer, torch::Tensor weight, torch::Tensor bias, Gradients& gradients)
    : layer_(layer),
      weight_(std::move(weight)),
      bias_(std::move(bias)),
      gradients_(gradients),
      weight_use_(use_of(gradients, weight_)) {
  if (bias_.defined()) bias_use_ = gradients.use_of(bias_);
}

torch::Tensor SplitLayer::forward(const torch::Tensor& input, const Kept& kept) const {
  return SplitNode::apply(input, weight_, this, &layer_, kept);
}

void SplitLayer::weight_gradients(std::span<const Kept> kept) const {
  const torch::NoGradGuard no_grad;
  Tensors inputs, output_gradients;
  for (const Kept& one : kept) {
    if (!one->output_gradient.defined()) continue;
    inputs.push_back(one->input);
    output_gradients.push_back(one->output_gradient);
  }
  if (!inputs.empty()) add_weight_gradients(inputs, output_gradients);
}

std::unique_ptr<SplitLayer> split_layer(const BuiltLayer& layer, Gradients& gradients) {
  for (const auto make : {split_linear, split_convolution, split_embedding})
    if (auto split = make(layer, gradients)) return split;
  return nullptr;
}

}  // namespace penstock
