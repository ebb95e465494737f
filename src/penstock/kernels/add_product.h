// Products of matrices that add to what is there.
#pragma once

#include "penstock/base/tensor.h"

namespace penstock {

/// Adds the matrix a b to `into`, a matrix of any strides, or writes it where `is_first`; without a product in between
/// where all are of one type.
void add_product_to(torch::Tensor into, bool is_first, const torch::Tensor& a, const torch::Tensor& b);

}  // namespace penstock
