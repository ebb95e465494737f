// Matrix products that accumulate.
#pragma once

#include "penstock/base/tensor.h"

namespace penstock::kernels {

/// Adds the matrix product a b to `into`, a matrix of any strides, or overwrites it if `is_first`. Needs no temporary if
/// all are of one type. Factors in bf16 are added to a sum in fp32 without rounding the product to bf16, by MKL and
/// without a temporary, if the processor has AMX; on others MKL's product was not compared with LibTorch's.
void add_product_to(torch::Tensor into, bool is_first, const torch::Tensor& a, const torch::Tensor& b);

}  // namespace penstock::kernels
