// The tuned kernels, as layers and the measurement of kernels ask for them: which kernels there are for a product, and
// the product by one of them. Callers call LibTorch's own kernels (`library`) themselves.
//
// The build selects one of two implementations: cpu_kernels.cc with the files that it uses, or cpu_kernels_stub.cc
// (PENSTOCK_CPU_KERNELS=OFF), for which there are only LibTorch's kernels.
//
// Tensors are on the CPU; results have no autograd graph. Any thread. A product by a kernel that this build lacks
// throws InternalError.
#pragma once

#include <vector>

#include "penstock/base/tensor.h"
#include "penstock/kernels/kernel_selection.h"

namespace penstock::kernels {

/// Whether this build contains `kernel`; library: always.
bool has_kernel(LinearKernel kernel);

/// Whether `kernel` of this build computes the products of a linear layer, with a bias or without, from x or dy; false
/// for tensors on other devices. library: always.
bool can_compute(LinearKernel kernel, const torch::Tensor& x_or_dy, bool has_bias);

/// x or dy, [..., features], in the memory order that `kernel` reads; the tensor itself if it has this order.
torch::Tensor arranged_for(LinearKernel kernel, const torch::Tensor& x_or_dy);

/// y = x w^T + b: [..., out] of x [..., in], weight [out, in] and bias [out] or undefined. `kernel` can compute x.
torch::Tensor tuned_linear(LinearKernel kernel, const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias);

/// dx = dy w: [..., in] of dy [..., out]. `kernel` can compute dy.
torch::Tensor tuned_linear_input_gradient(LinearKernel kernel, const torch::Tensor& dy, const torch::Tensor& weight);

/// Whether this build contains `kernel` for `product`; library: always.
bool has_kernel(ConvolutionKernel kernel, Product product);

/// y [n, out, oh, ow] of x [n, in, h, w], both in channels-last order. `bias` may be undefined.
torch::Tensor convolve(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias,
                       const ConvolutionGeometry& geometry, ConvolutionKernel kernel);

/// dx [n, in, h, w], for an image of size `image`, of dy in channels-last order; by kernel_positions.
torch::Tensor convolution_input_gradient(const torch::Tensor& dy, const torch::Tensor& weight, const Extent& image,
                                         const ConvolutionGeometry& geometry);

/// x and dy of several micro-batches, all of one shape and in channels-last order.
struct WeightProduct {
  const std::vector<torch::Tensor>& x;
  const std::vector<torch::Tensor>& dy;
};

/// Adds dw to `sum` [out, kh, kw, in], contiguous, or overwrites it if `is_first`.
void add_convolution_weight_gradient(torch::Tensor& sum, bool is_first, const WeightProduct& product,
                                     const ConvolutionGeometry& geometry, ConvolutionKernel kernel);

/// GELU in its tanh form, of contiguous tensors in fp32 or bf16, computed in fp32: y of x.
torch::Tensor gelu_of(const torch::Tensor& x);

/// dx of the same, for dy of the same type.
torch::Tensor gelu_input_gradient(const torch::Tensor& x, const torch::Tensor& dy);

}  // namespace penstock::kernels
