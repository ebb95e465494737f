#include "penstock/base/device_copy.h"

#include <ATen/ATen.h>

namespace penstock {

// From memory that is not pinned, CUDA's copies would wait for the stream.
torch::Tensor to_device(const torch::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  const torch::Tensor from = tensor.is_cpu() && device.is_cuda() ? tensor.pin_memory() : tensor;
  return from.to(device, /*non_blocking=*/tensor.is_cpu());
}

torch::Tensor to_host_later(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  const at::TensorOptions options = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda());
  return at::empty_like(tensor, options, at::MemoryFormat::Preserve).copy_(tensor, /*non_blocking=*/true);
}

}  // namespace penstock
