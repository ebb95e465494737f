// The layers that can be split, one file each. Each function gives null for a layer that is not of its kind.
#pragma once

#include <typeinfo>

#include "penstock/runtime/split_layer.h"

namespace penstock {

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

}  // namespace penstock
