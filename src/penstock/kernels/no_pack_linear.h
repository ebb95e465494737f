// y = x w^T + b for few rows, with the weights read once, where they lie.
//
// A library made for large products first copies the weights into another order. At the 16 rows of a micro-batch the
// copy costs as much as the product. BLIS has kernels that do without (its docs/PerformanceSmall.md), and they are the
// fastest where x and y lie feature by feature: the registers then hold rows of one feature.
#pragma once

#include <torch/types.h>

namespace penstock {

/// Whether this build has BLIS. Without it the two products throw InternalError.
bool has_no_pack_linear();

/// The same values, [..., features], with the rows of each feature next to each other in memory; the tensor itself
/// where they are already.
inline torch::Tensor feature_by_feature(const torch::Tensor& tensor) {
  return tensor.reshape({-1, tensor.size(-1)}).t().contiguous().t().view(tensor.sizes());
}

/// x [..., in], weight [out, in], bias [out] or undefined: y [..., out], feature by feature, without a graph. For fp32
/// on the CPU, not empty, in any order in memory. Any thread.
torch::Tensor no_pack_linear(const torch::Tensor& x, const torch::Tensor& weight, const torch::Tensor& bias);

/// dy [..., out]: dx = dy w [..., in], alike.
torch::Tensor no_pack_input_gradient(const torch::Tensor& dy, const torch::Tensor& weight);

}  // namespace penstock
