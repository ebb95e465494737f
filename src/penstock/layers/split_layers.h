// The layers that can be split, and what the measurement of kernels shares with them.
#pragma once

#include <algorithm>
#include <typeinfo>

#include <torch/nn/modules/conv.h>

#include "penstock/layers/split_layer.h"

namespace penstock::layers {

/// y = x w + b with w [in, out], as GPT-2 stores it, which is split as torch::nn::Linear is.
class TransposedLinear : public torch::nn::Module {
 public:
  TransposedLinear(std::int64_t in, std::int64_t out);  // the weight is not initialised, the bias is 0
  torch::Tensor forward(const torch::Tensor& x) {
    return torch::addmm(bias, x.flatten(0, -2), weight).unflatten(0, x.sizes().slice(0, x.dim() - 1));
  }

  torch::Tensor weight, bias;
};

/// `call` as a SplitLayer that adds to `gradients`, which must contain its parameters and outlive it. Null where the
/// backward pass cannot be split: for other modules, for classes derived from those below, for frozen weights, and for
/// options that make the gradient more than a product.
std::unique_ptr<SplitLayer> split_layer(const LayerCall& call, Gradients& gradients);

/// The module as an M; null for classes derived from M, which may compute something else, and for a frozen weight.
template <class M>
const M* splittable(const LayerCall& call) {
  const torch::nn::Module& module = *call.layer.module;
  if (typeid(module) != typeid(M)) return nullptr;
  const auto* exact = static_cast<const M*>(&module);
  return exact->weight.requires_grad() ? exact : nullptr;
}

/// The concatenation along dimension 0; a single tensor is not copied.
inline torch::Tensor stacked(const Tensors& rows) { return rows.size() == 1 ? rows.front() : torch::cat(rows); }

/// The key by which the kernels of a convolution of x are chosen; none if there is no choice.
std::optional<kernels::ConvolutionShape> tunable_shape(const torch::nn::Conv2dImpl& module, const torch::Tensor& x);

/// y = x w^T + b, and dx = dy w, computed by `kernel`, which can compute them (can_compute), without a graph.
torch::Tensor run_linear(kernels::LinearKernel kernel, const torch::Tensor& x, const WeightAndBias& parameters);
torch::Tensor linear_input_gradient(kernels::LinearKernel kernel, const torch::Tensor& dy, const torch::Tensor& weight);

/// A product of this many rows runs at full speed: stacking more rows gains nothing, and copies them.
constexpr std::int64_t enough_rows = 512;

/// Calls `add(begin, end)` for each group of micro-batches that a fused W stacks, out of `count` with `rows` rows each.
/// A group is the fewest micro-batches with enough_rows together.
template <class Add>
void for_each_stack(std::size_t count, std::int64_t rows, Add&& add) {
  const auto size = static_cast<std::size_t>(rows > 0 ? std::max<std::int64_t>(1, (enough_rows + rows - 1) / rows) : 1);
  for (std::size_t begin = 0; begin < count; begin += size) add(begin, std::min(count, begin + size));
}

}  // namespace penstock::layers
