// y = x w^T + b with x [..., in], w [out, in], y [..., out]:
//   I  dx = dy w
//   W  dw = dy^T x, db = sum of dy's rows
#include <torch/nn/modules/linear.h>

#include "penstock/kernels/cpu_kernels.h"
#include "penstock/layers/split_layers.h"

namespace penstock {
namespace {

/// stacked() that keeps the memory order of the rows.
torch::Tensor stacked_rows(Tensors rows) {
  if (rows.size() == 1 || rows.front().is_contiguous()) return stacked(rows);
  for (torch::Tensor& some : rows) some = some.t();
  return torch::cat(rows, 1).t();
}

class SplitLinear : public SplitLayer {
 public:
  SplitLinear(const LayerCall& call, const torch::nn::LinearImpl& module, Gradients& gradients)
      : SplitLayer(call, {module.weight, module.bias}, gradients) {}

 private:
  /// The selected kernel where it supports x, otherwise the library's.
  LinearKernel kernel_for(const torch::Tensor& x) const {
    const LinearKernel kernel = kernels().kernel_for(LinearShape{weight().size(1), weight().size(0)});
    return can_compute(kernel, x, bias().defined()) ? kernel : LinearKernel::library;
  }

  bool has_own_kernel(const torch::Tensor& x) const override { return kernel_for(x) != LinearKernel::library; }

  torch::Tensor arranged(const torch::Tensor& tensor) const override {
    return arranged_for(kernel_for(tensor), tensor);
  }

  torch::Tensor compute(const torch::Tensor& x, const WeightAndBias& parameters) const override {
    return run_linear(kernel_for(x), x, parameters);
  }

  torch::Tensor input_gradient_of(const SavedForWeights& saved) const override {
    const torch::Tensor& dy = saved.output_gradient;
    return linear_input_gradient(kernel_for(dy), dy, parameters_for(dy).weight);
  }

  void add_weight_gradients(const Tensors& inputs, const Tensors& output_gradients) const override {
    Tensors x, dy;
    for (const torch::Tensor& input : inputs) x.push_back(input.reshape({-1, weight().size(1)}));
    for (const torch::Tensor& gradient : output_gradients) dy.push_back(gradient.reshape({-1, weight().size(0)}));
    for_each_stack(x.size(), x.front().size(0), [&](std::size_t begin, std::size_t end) {
      const auto some = [&](const Tensors& all) {
        return stacked_rows(
            Tensors(all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)));
      };
      const torch::Tensor rows = some(dy);
      gradients().add_product(weight_use(), rows.t(), some(x));
      if (bias_use())
        gradients().add(*bias_use(), rows.sum(at::IntArrayRef{0}, /*keepdim=*/false, weight().scalar_type()));
    });
  }
};

}  // namespace

torch::Tensor run_linear(LinearKernel kernel, const torch::Tensor& x, const WeightAndBias& parameters) {
  const auto& [weight, bias] = parameters;
  return kernel == LinearKernel::library ? torch::linear(x, weight, bias) : tuned_linear(kernel, x, weight, bias);
}

torch::Tensor linear_input_gradient(LinearKernel kernel, const torch::Tensor& dy, const torch::Tensor& weight) {
  return kernel == LinearKernel::library ? dy.matmul(weight) : tuned_linear_input_gradient(kernel, dy, weight);
}

std::unique_ptr<SplitLayer> split_linear(const LayerCall& call, Gradients& gradients) {
  const auto* module = splittable<torch::nn::LinearImpl>(call);
  return module ? std::make_unique<SplitLinear>(call, *module, gradients) : nullptr;
}

}  // namespace penstock
