#include "penstock/runtime/split_layer.h"

#include <torch/autograd.h>

#include "penstock/base/error.h"
#include "penstock/runtime/split_layers.h"

namespace penstock {
namespace {

struct SplitNode : torch::autograd::Function<SplitNode> {
  /// The weight is an argument so that the output wants a gradient even where the input does not.
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                               const torch::Tensor&, const Kept& kept) {
    context->saved_data["kept"] = c10::IValue::make_capsule(kept);
    // Detached: W must not keep alive the graph that led here.
    kept->input = input.detach();
    kept->version = input._version();
    return kept->layer->run(input);
  }

  static Tensors backward(torch::autograd::AutogradContext* context, const Tensors& output_gradients) {
    auto kept = c10::static_intrusive_pointer_cast<KeptForWeights>(context->saved_data["kept"].toCapsule());
    Tensors gradients(3);
    if (!output_gradients.front().defined()) return gradients;
    kept->output_gradient = output_gradients.front();
    if (context->needs_input_grad(0)) gradients.front() = kept->layer->input_gradient(*kept);
    if (kept->weights_now) kept->layer->weight_gradients({&kept, 1});
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
}

torch::Tensor SplitLayer::forward(const torch::Tensor& input, const Kept& kept) const {
  kept->layer = this;
  return SplitNode::apply(input, weight(), kept);
}

torch::Tensor SplitLayer::input_gradient(const KeptForWeights& kept) const {
  require_unchanged(kept);
  return input_gradient_of(kept);
}

void SplitLayer::weight_gradients(std::span<const Kept> kept) const {
  const torch::NoGradGuard no_grad;
  Tensors inputs, output_gradients;
  for (const Kept& one : kept) {
    if (!one->output_gradient.defined()) continue;
    require_unchanged(*one);
    inputs.push_back(std::move(one->input));
    output_gradients.push_back(std::move(one->output_gradient));
    one->clear();
  }
  if (!inputs.empty()) add_weight_gradients(inputs, output_gradients);
}

void SplitLayer::require_unchanged(const KeptForWeights& kept) const {
  const auto version = static_cast<std::int64_t>(kept.input._version());
  require<PlanError>(version == kept.version, "the input of layer '", call_.name, "' was changed in place after the ",
                     "layer had used it (version ", kept.version, ", then ", version,
                     "), and its backward pass needs it as it was: use a layer that does not work in place");
}

std::unique_ptr<SplitLayer> split_layer(const LayerCall& call, Gradients& gradients) {
  for (const auto make : {split_linear, split_convolution, split_embedding})
    if (auto split = make(call, gradients)) return split;
  return nullptr;
}

}  // namespace penstock
