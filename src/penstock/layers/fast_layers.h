// Layers as tuned kernels want them.
#pragma once

#include "penstock/model/layer.h"

namespace penstock {

/// Brings the weights of a convolution into channels-last order, and puts kernels/gelu.h in the place of a GELU in its
/// tanh form, for inputs in fp32 on the CPU. Any other layer stays as it is. For KernelSelection::tuned().
void make_fast(BuiltLayer& layer);

}  // namespace penstock
