// No-pack GEMM: y = x w^T + b for few rows, reading the weights once and in place.
//
// A library for large products first packs the weights into another order. For the 16 rows of a micro-batch that copy
// costs as much as the product. BLIS has kernels that need no packing (its docs/PerformanceSmall.md); they are the
// fastest if the rows of each feature of x and y are contiguous, so that a register holds rows of one feature.
#pragma once

#include <torch/types.h>

namespace penstock::kernels {

/// Whether this build has BLIS. Without it both products throw InternalError.
bool has_no_pack_linear();

/// The same values, [..., features], with the rows of each feature contiguous in memory; a view where they are already.
inline torch::Tensor feature_by_feature(const torch::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)}).t().contiguous().t().view(tensor.sizes());
}

/// y [..., out] of x [..., in], weight [out, in] and bias [out] or undefined: laid out feature by feature, without a
/// graph. For non-empty fp32 tensors on the CPU, of any strides. Any thread.
torch::Tensor no_pack_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

/// dx = dy w, [..., in], of dy [..., out]; the same layout and requirements.
torch::Tensor no_pack_input_gradient(const torch::Tensor& dy, const torch::Tensor& weight);

}  // namespace penstock::kernels
