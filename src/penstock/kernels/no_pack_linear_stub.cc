// Replaces no_pack_linear.cc in a build without BLIS.
#include "penstock/base/error.h"
#include "penstock/kernels/no_pack_linear.h"

namespace penstock::kernels {

bool has_no_pack_linear() { return false; }

torch::Tensor no_pack_linear(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&) {
  throw InternalError("a no-pack product without BLIS");
}

torch::Tensor no_pack_input_gradient(const torch::Tensor&, const torch::Tensor&) {
  throw InternalError("a no-pack product without BLIS");
}

}  // namespace penstock::kernels
