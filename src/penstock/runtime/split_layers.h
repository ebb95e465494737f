// The layers that can be split, one file each. Each function gives null for a layer that is not of its kind.
#pragma once

#include "penstock/runtime/split_layer.h"

namespace penstock {

std::unique_ptr<SplitLayer> split_linear(const BuiltLayer& layer, Gradients& gradients);
std::unique_ptr<SplitLayer> split_convolution(const BuiltLayer& layer, Gradients& gradients);
std::unique_ptr<SplitLayer> split_embedding(const BuiltLayer& layer, Gradients& gradients);

/// The tensors below each other: one stays itself, without a copy.
inline torch::Tensor stacked(const Tensors& rows) { return rows.size() == 1 ? rows.front() : torch::cat(rows); }

}  // namespace penstock
