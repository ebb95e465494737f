#include "penstock/transport/data_plane.h"

#include <cstdint>

#include <torch/torch.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

bool is_dense(const torch::Tensor& tensor) { return tensor.numel() == 0 || tensor.is_non_overlapping_and_dense(); }

/// Whether the tensor uses less than half of its storage, and a copy would free more than a page.
bool keeps_much_alive(const torch::Tensor& tensor) { return tensor.storage().nbytes() > 2 * tensor.nbytes() + 4096; }

bool is_aligned(const torch::Tensor& tensor) {
  return tensor.numel() == 0 || reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr()) % tensor_alignment == 0;
}

torch::Tensor prepared(const torch::Tensor& tensor, bool is_kept) {
  if (!tensor.defined()) return tensor;
  require<TransportError>(tensor.layout() == torch::kStrided && !tensor.is_quantized(), "a ", tensor.toString(),
                          " cannot be sent between ranks: make it dense first");
  const torch::NoGradGuard no_grad;
  torch::Tensor sent = tensor.detach().resolve_conj().resolve_neg();
  if (!is_dense(sent)) return sent.contiguous();
  return (!is_kept && keeps_much_alive(sent)) || !is_aligned(sent) ? sent.clone() : sent;
}

}  // namespace

torch::Tensor prepare_for_send(const torch::Tensor& tensor) { return prepared(tensor, false); }

Message prepare_for_send(Message message) {
  for (Payload& payload : message.payloads) payload.tensor = prepared(payload.tensor, payload.is_kept);
  return message;
}

}  // namespace penstock
