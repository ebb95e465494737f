#include "penstock/transport/receive_memory.h"

#include <torch/torch.h>

#include "penstock/transport/device_hand_over.h"

namespace penstock {

ReceiveMemory::Given ReceiveMemory::tensor(const Part& part, const torch::Tensor& like, const c10::Stream& reader) {
  const torch::NoGradGuard no_grad;
  const auto bytes = static_cast<std::int64_t>(like.nbytes());
  const c10::Device device = reader.device();
  torch::Tensor& owner = owners_[part];
  const bool is_new = !owner.defined() || owner.numel() < bytes || owner.storage().use_count() > 1;
  if (is_new) {
    owner = torch::empty({bytes}, torch::TensorOptions(torch::kUInt8).device(device));
  } else {
    event_on(reader).block(current_stream(device));
  }
  // Not a view of the owner, which autograd would know of, and layers could not change in place.
  return {torch::empty({0}, like.options().device(device)).set_(owner.storage(), 0, like.sizes(), like.strides()),
          is_new};
}

}  // namespace penstock
