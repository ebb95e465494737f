// The layers that can be split, one file each. Each function gives null for a layer that is not of its kind.
#pragma once

#include <algorithm>
#include <typeinfo>

#include <torch/nn/modules/conv.h>

#include "penstock/layers/split_layer.h"

namespace penstock {

/// `call` as a SplitLayer that adds to `gradients`, which knows its parameters already; null where its backward pass
/// cannot be split: other modules, classes derived from those that can, frozen weights, options that make the gradient
/// more than a product.
std::unique_ptr<SplitLayer> split_layer(const LayerCall& call, Gradients& gradients);

std::unique_ptr<SplitLayer> split_linear(const LayerCall& call, Gradients& gradients);
std::unique_ptr<SplitLayer> split_convolution(const LayerCall& call, Gradients& gradients);
std::unique_ptr<SplitLayer> split_embedding(const LayerCall& call, Gradients& gradients);

/// The module as an M; null unless it is exactly that: a class derived from it may compute something else. Its weight
/// must train too.
template <class M>
const M* splittable(const LayerCall& call) {
  const torch::nn::Module& module = *call.layer.module;
  if (typeid(module) != typeid(M)) return nullptr;
  const auto* exact = static_cast<const M*>(&module);
  return exact->weight.requires_grad() ? exact : nullptr;
}

/// The tensors below each other: one stays itself, without a copy.
inline torch::Tensor stacked(const Tensors& rows) { return rows.size() == 1 ? rows.front() : torch::cat(rows); }

/// What the kernels of a convolution of x are chosen by; none where there is no choice.
std::optional<ConvolutionShape> tunable_shape(const torch::nn::Conv2dImpl& module, const torch::Tensor& x);

/// y = x w^T + b and dx = dy w by that kernel, without a graph.
torch::Tensor run_linear(LinearKernel kernel, const torch::Tensor& x, const WeightAndBias& parameters);
torch::Tensor linear_input_gradient(LinearKernel kernel, const torch::Tensor& dy, const torch::Tensor& weight);

/// Rows of a product that make it large: stacking more of them gains nothing, and copies them.
constexpr std::int64_t enough_rows = 512;

/// Calls `add(begin, end)` for the micro-batches that a fused W stacks, of `count` with `rows` each: as few as have
/// enough rows together.
template <class Add>
void for_each_stack(std::size_t count, std::int64_t rows, Add&& add) {
  const auto size = static_cast<std::size_t>(rows > 0 ? std::max<std::int64_t>(1, (enough_rows + rows - 1) / rows) : 1);
  for (std::size_t begin = 0; begin < count; begin += size) add(begin, std::min(count, begin + size));
}

}  // namespace penstock
