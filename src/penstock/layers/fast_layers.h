// Prepares built layers for faster kernels.
#pragma once

#include "penstock/model/layer.h"

namespace penstock::layers {

/// Converts the weights of a convolution to channels-last order, and computes a GELU in its tanh form by
/// kernels/cpu_kernels.h, in fp32, for fp32 and bf16 inputs on the CPU. Other layers do not change. Used with KernelSelection::tuned().
void make_fast(BuiltLayer& layer);

/// In an inference session, a torch::nn::Linear then multiplies few rows in fp32, as they occur when texts grow by a
/// token at a time, by reading its weight in place. Other layers do not change.
void make_few_rows_fast(BuiltLayer& layer);

/// y = x w^T + b, [..., out] of x [..., in], as such a layer computes it.
torch::Tensor linear_of_few_rows(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

}  // namespace penstock::layers
