// Copies between the host and a device that no thread waits for. On the CPU they are the tensor itself.
#pragma once

#include <c10/core/Device.h>

#include "penstock/base/tensor.h"

namespace penstock {

/// `tensor` on `device`, with its dtype, sizes and strides; itself where it is there already. A copy from the host is
/// queued on the device's current stream and does not wait for it: the calling thread may free or change `tensor` at
/// once. An undefined tensor stays undefined.
torch::Tensor to_device(const torch::Tensor& tensor, c10::Device device);

/// A copy of `tensor` on the CPU, dense, with the order of its strides. Its values arrive with the work that is queued
/// now on the current stream of its device: read it after a wait for that stream. A tensor of the CPU itself.
torch::Tensor to_host_later(const torch::Tensor& tensor);

}  // namespace penstock
