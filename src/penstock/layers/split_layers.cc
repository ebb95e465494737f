#include "penstock/layers/split_layers.h"

namespace penstock {

std::unique_ptr<SplitLayer> split_layer(const LayerCall& call, Gradients& gradients) {
  for (const auto make : {split_linear, split_convolution, split_embedding})
    if (auto split = make(call, gradients)) return split;
  return nullptr;
}

}  // namespace penstock
