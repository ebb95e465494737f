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
  bool has_own_kernel(const torch::Tensor& x) const override {
    return x.device().is_cpu() && weight().dim() == 2 && bias().defined() &&
           kernels().kernel_for(LinearShape{weight().size(1), weight().size(0)}) == LinearKernel::bias_apart;
  }

  torch::Tensor compute(const torch::Tensor& x, const WeightAndBias& parameters) const override {
    return has_own_kernel(x) ? linear_with_bias_apart(x, parameters.weight, parameters.bias)
                             : torch::linear(x, parameters.weight, parameters.bias);
  }

  torch::Tensor input_gradient_of(const KeptForWeights& kept) const override {
    return kept.output_gradient.matmul(parameters_for(kept.output_gradient).weight);
  }

  void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const override {
    Tensors x, dy;
    for (const torch::Tensor& input : inputs) x.push_back(input.reshape({-1, weight().size(1)}));
    for (const torch::Tensor& gradient : output_gradients) dy.push_back(gradient.reshape({-1, weight().size(0)}));
    for_each_stack(x.size(), x.front().size(0), [&](std::size_t begin, std::size_t end) {
      const auto some = [&](const Tensors& all) {
        return stacked(Tensors(all.begin() + static_cast<std::ptrdiff_t>(begin),
                               all.begin() + static_cast<std::ptrdiff_t>(end)));
      };
      const torch::Tensor rows = some(dy);
      gradients().add_product(weight_use(), rows.t(), some(x));
      if (bias_use())
        gradients().add(*bias_use(), rows.sum(at::IntArrayRef{0}, /*keepdim=*/false, weight().scalar_type()));
    });
  }
};

}  // namespace

torch::Tensor linear_with_bias_apart(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias) {
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return torch::mm(x.reshape({-1, weight.size(1)}), weight.t()).add_(bias).view(sizes);
}

std::unique_ptr<SplitLayer> split_linear(const LayerCall& call, Gradients& gradients) {
  const auto* module = splittable<torch::nn::LinearImpl>(call);
  return module ? std::make_unique<SplitLinear>(call, *module, gradients) : nullptr;
}

}  // namespace penstock
