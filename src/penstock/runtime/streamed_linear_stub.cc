// In place of streamed_linear.cc where there is no BLIS.
#include "penstock/base/error.h"
#include "penstock/runtime/streamed_linear.h"

namespace penstock {

bool has_streamed_linear() { return false; }

torch::Tensor streamed_linear(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&) {
  throw InternalError("a streamed product without BLIS");
}

torch::Tensor streamed_input_gradient(const torch::Tensor&, const torch::Tensor&) {
  throw InternalError("a streamed product without BLIS");
}

}  // namespace penstock
