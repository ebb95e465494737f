// Replaces cpu_kernels.cc and the kernels that it uses in a build without tuned kernels (PENSTOCK_CPU_KERNELS=OFF).
#include "penstock/base/error.h"
#include "penstock/kernels/cpu_kernels.h"

namespace penstock::kernels {
namespace {

// kernels_from() refuses every selection by which a layer could get here.
[[noreturn]] void throw_missing() { throw InternalError("a tuned kernel in a build without them"); }

}  // namespace

bool has_kernel(LinearKernel kernel) { return kernel == LinearKernel::library; }
bool can_compute(LinearKernel kernel, const torch::Tensor&, bool) { return has_kernel(kernel); }
torch::Tensor arranged_for(LinearKernel, const torch::Tensor& x_or_dy) { return x_or_dy; }
torch::Tensor tuned_linear(LinearKernel, const torch::Tensor&, const torch::Tensor&, const torch::Tensor&) {
  throw_missing();
}
torch::Tensor tuned_linear_input_gradient(LinearKernel, const torch::Tensor&, const torch::Tensor&) { throw_missing(); }

bool has_kernel(ConvolutionKernel kernel, Product) { return kernel == ConvolutionKernel::library; }
torch::Tensor convolve(const torch::Tensor&, const torch::Tensor&, const torch::Tensor&, const ConvolutionGeometry&,
                       ConvolutionKernel) {
  throw_missing();
}
torch::Tensor convolution_input_gradient(const torch::Tensor&, const torch::Tensor&, const Extent&,
                                         const ConvolutionGeometry&) {
  throw_missing();
}
void add_convolution_weight_gradient(torch::Tensor&, bool, const WeightProduct&, const ConvolutionGeometry&,
                                     ConvolutionKernel) {
  throw_missing();
}

torch::Tensor gelu_of(const torch::Tensor&) { throw_missing(); }
torch::Tensor gelu_input_gradient(const torch::Tensor&, const torch::Tensor&) { throw_missing(); }

}  // namespace penstock::kernels
