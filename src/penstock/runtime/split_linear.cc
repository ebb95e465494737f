// y = x w^T + b with x [..., in], w [out, in], y [..., out]:
//   I  dx = dy w
//   W  dw = dy^T x, db = sum of dy's rows
#include <torch/nn/modules/linear.h>

#include "penstock/runtime/split_layers.h"

namespace penstock {
namespace {

class SplitLinear : public SplitLayer {
 public:
  SplitLinear(const LayerCall& call, const torch::nn::LinearImpl& module, Gradients& gradients)
      : SplitLayer(call, {module.weight, module.bias}, gradients) {}

 private:
  torch::Tensor compute(const torch::Tensor& x, const WeightAndBias& parameters) const override {
    return torch::linear(x, parameters.weight, parameters.bias);
  }

  torch::Tensor input_gradient_of(const KeptForWeights& kept) const override {
    return kept.output_gradient.matmul(parameters_for(kept.output_gradient).weight);
  }

  void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const override {
    const torch::Tensor x = as_rows(inputs, weight().size(1));
    const torch::Tensor dy = as_rows(output_gradients, weight().size(0));
    gradients().add_product(weight_use(), dy.t(), x);
    if (bias_use()) gradients().add(*bias_use(), dy.sum(at::IntArrayRef{0}, /*keepdim=*/false, weight().scalar_type()));
  }

  static torch::Tensor as_rows(const Tensors& tensors, std::int64_t width) {
    Tensors rows;
    for (const torch::Tensor& tensor : tensors) rows.push_back(tensor.reshape({-1, width}));
    return stacked(rows);
  }
};

}  // namespace

std::unique_ptr<SplitLayer> split_linear(const LayerCall& call, Gradients& gradients) {
  const auto* module = splittable<torch::nn::LinearImpl>(call);
  return module ? std::make_unique<SplitLinear>(call, *module, gradients) : nullptr;
}

}  // namespace penstock
