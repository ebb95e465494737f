// Matrix products that accumulate.
#pragma once

#include "penstock/base/tensor.h"

namespace penstock {

/// Adds the matrix product a b to `into`, a matrix of any strides, or overwrites it where `is_first`. Needs no
/// temporary where all are of one type.
void add_product_to(torch::Tensor into, bool is_first, const torch::Tensor& a, const torch::Tensor& b);

}  // namespace penstock
