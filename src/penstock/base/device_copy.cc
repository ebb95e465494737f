#include "penstock/base/device_copy.h"

#include <ATen/ATen.h>

#include "penstock/base/device_graph.h"
#include "penstock/base/error.h"

namespace penstock {

namespace {

// From memory that is not pinned, CUDA's copies would wait for the stream.
torch::Tensor staged(const torch::Tensor& tensor, c10::Device device) {
  return tensor.is_cpu() && device.is_cuda() ? tensor.pin_memory() : tensor;
}

}  // namespace

torch::Tensor to_device(const torch::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || tensor.device() == device) return tensor;
  // The copy would be repeated from memory that is freed by then.
  require<Failure>(!DeviceGraph::is_capturing(), "a tensor of ", tensor.device().str(), " is copied to ", device.str());
  return staged(tensor, device).to(device, /*non_blocking=*/tensor.is_cpu());
}

void copy_to_device(const torch::Tensor& to, const torch::Tensor& tensor) {
  to.copy_(staged(tensor, to.device()), /*non_blocking=*/tensor.is_cpu());
}

torch::Tensor to_host_later(const torch::Tensor& tensor) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  const at::TensorOptions options = tensor.options().device(at::kCPU).pinned_memory(tensor.is_cuda());
  return at::empty_like(tensor, options, at::MemoryFormat::Preserve).copy_(tensor, /*non_blocking=*/true);
}

}  // namespace penstock
