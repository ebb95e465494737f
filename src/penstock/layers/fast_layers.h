// Prepares layers for tuned kernels.
#pragma once

#include "penstock/model/layer.h"

namespace penstock::layers {

/// Converts the weights of a convolution to channels-last order, and computes a GELU in its tanh form by
/// kernels/cpu_kernels.h for fp32 inputs on the CPU. Other layers do not change. Used with KernelSelection::tuned().
void make_fast(BuiltLayer& layer);

}  // namespace penstock::layers
