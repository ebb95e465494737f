// Sums of the rows of a matrix: gradients of biases.
#pragma once

#include "penstock/base/tensor.h"

namespace penstock::kernels {

/// The sum of the rows of a matrix, in `type`. In fp32 the rows of a bf16 matrix on the CPU are added one after the
/// other, with the same bits on every processor and without a copy of all in fp32, which LibTorch would make.
torch::Tensor sum_of_rows(const torch::Tensor& rows, c10::ScalarType type);

}  // namespace penstock::kernels
