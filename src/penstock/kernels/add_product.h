// Matrix products that accumulate.
#pragma once

#include <ATen/ops/mm.h>

#include "penstock/base/tensor.h"

namespace penstock::kernels {

/// Adds the matrix product a b to `into`, a matrix of any strides, or overwrites it if `is_first`. Needs no temporary
/// if all are of one type.
inline void add_product_to(torch::Tensor into, bool is_first, const torch::Tensor& a, const torch::Tensor& b) {
  if (a.scalar_type() != into.scalar_type()) {
    const torch::Tensor product = at::mm(a, b);
    if (is_first)
      into.copy_(product);
    else
      into.add_(product);
  } else if (is_first) {
    at::mm_out(into, a, b);
  } else {
    into.addmm_(a, b);
  }
}

}  // namespace penstock::kernels
