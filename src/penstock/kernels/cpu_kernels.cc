#include "penstock/kernels/cpu_kernels.h"

#include <torch/types.h>

#include "penstock/kernels/gelu.h"
#include "penstock/kernels/no_pack_linear.h"

// Products of convolutions are in gemm_convolution.cc.
namespace penstock::kernels {

bool has_kernel(LinearKernel kernel) { return kernel != LinearKernel::no_pack || has_no_pack_linear(); }

bool can_compute(LinearKernel kernel, const torch::Tensor& x_or_dy, bool has_bias) {
  if (kernel == LinearKernel::library) return true;
  if (!has_kernel(kernel) || !x_or_dy.device().is_cpu() || x_or_dy.numel() == 0) return false;
  return kernel == LinearKernel::no_pack ? x_or_dy.scalar_type() == torch::kFloat32 : has_bias;
}

torch::Tensor arranged_for(LinearKernel kernel, const torch::Tensor& x_or_dy) {
  return kernel == LinearKernel::no_pack ? feature_by_feature(x_or_dy) : x_or_dy;
}

torch::Tensor tuned_linear(LinearKernel kernel, const torch::Tensor& x, const torch::Tensor& weight,
                           const torch::Tensor& bias) {
  if (kernel == LinearKernel::no_pack) return no_pack_linear(x, weight, bias);
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  return torch::mm(x.reshape({-1, weight.size(1)}), weight.t()).add_(bias).view(sizes);
}

torch::Tensor tuned_linear_input_gradient(LinearKernel kernel, const torch::Tensor& dy, const torch::Tensor& weight) {
  return kernel == LinearKernel::no_pack ? no_pack_input_gradient(dy, weight) : dy.matmul(weight);
}

bool has_kernel(ConvolutionKernel kernel, Product product) {
  return kernel != ConvolutionKernel::columns || product != Product::input_grad;
}

torch::Tensor gelu_of(const torch::Tensor& x) {
  torch::Tensor y = torch::empty_like(x);
  if (x.scalar_type() == torch::kBFloat16)
    gelu_forward(x.const_data_ptr<c10::BFloat16>(), y.mutable_data_ptr<c10::BFloat16>(), x.numel());
  else
    gelu_forward(x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), x.numel());
  return y;
}

torch::Tensor gelu_input_gradient(const torch::Tensor& x, const torch::Tensor& dy) {
  torch::Tensor dx = torch::empty_like(x);
  if (x.scalar_type() == torch::kBFloat16)
    gelu_backward(x.const_data_ptr<c10::BFloat16>(), dy.const_data_ptr<c10::BFloat16>(),
                  dx.mutable_data_ptr<c10::BFloat16>(), x.numel());
  else
    gelu_backward(x.const_data_ptr<float>(), dy.const_data_ptr<float>(), dx.mutable_data_ptr<float>(), x.numel());
  return dx;
}

}  // namespace penstock::kernels
