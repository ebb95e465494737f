#include "penstock/kernels/add_product.h"

namespace penstock {

void add_product_to(torch::Tensor into, bool is_first, const torch::Tensor& a, const torch::Tensor& b) {
  if (a.scalar_type() != into.scalar_type()) {
    const torch::Tensor product = torch::mm(a, b);
    if (is_first)
      into.copy_(product);
    else
      into.add_(product);
  } else if (is_first) {
    torch::mm_out(into, a, b);
  } else {
    into.addmm_(a, b);
  }
}

}  // namespace penstock
