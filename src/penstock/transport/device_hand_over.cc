#include "penstock/transport/device_hand_over.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "penstock/base/device_copy.h"

namespace penstock::transport {
namespace {

/// `copy` is used on `user` once the present work of `link` is complete.
void hand_over(const torch::Tensor& copy, const c10::Stream& link, const c10::Stream& user) {
  event_on(link).block(user);
  record_use(copy, user);
}

}  // namespace

std::shared_ptr<const DeviceEvents> DeviceEvents::of(const std::vector<torch::Tensor>& tensors) {
  std::shared_ptr<DeviceEvents> events;
  for (const torch::Tensor& tensor : tensors) {
    if (!tensor.defined() || tensor.is_cpu()) continue;
    if (!events) events = std::make_shared<DeviceEvents>();
    if (std::ranges::count(events->events_, tensor.device(), &c10::Event::device) > 0) continue;
    events->events_.emplace_back(tensor.device().type());
    events->events_.back().record(current_stream(tensor.device()));
  }
  return events;
}

void DeviceEvents::block(const c10::Stream& stream, c10::Device of) const {
  for (const c10::Event& event : events_)
    if (event.device() == of) event.block(stream);
}

void DeviceEvents::block_current_streams() const {
  for (const c10::Event& event : events_) event.block(current_stream(event.device()));
}

c10::Stream current_stream(c10::Device device) { return c10::impl::VirtualGuardImpl(device.type()).getStream(device); }

c10::Event event_on(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

void record_use(const torch::Tensor& tensor, const c10::Stream& stream) {
  if (tensor.defined() && !tensor.is_cpu())
    c10::impl::VirtualGuardImpl(stream.device_type()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

torch::Tensor empty_on(c10::Device device, const torch::Tensor& like) {
  return torch::empty_strided(like.sizes(), like.strides(), like.options().device(device));
}

Message with_events(Message message) {
  std::vector<torch::Tensor> tensors;
  for (const Payload& payload : message.payloads) tensors.push_back(payload.tensor);
  message.ready = DeviceEvents::of(tensors);
  return message;
}

const c10::Stream& LinkStreams::of(c10::Device device) {
  const auto known = streams_.find(device.index());
  if (known != streams_.end()) return known->second;
  const c10::impl::VirtualGuardImpl guard(device.type());
  return streams_.emplace(device.index(), guard.getStreamFromGlobalPool(device)).first->second;
}

torch::Tensor DeviceReceiver::receive(const torch::Tensor& tensor, const DeviceEvents& ready) {
  if (!tensor.defined() || tensor.is_cpu()) return tensor;
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  const c10::Stream stream = guard.getStream(guard.getDevice());
  if (stream.device() != tensor.device()) return copied(tensor, ready, stream);
  ready.block(stream, tensor.device());
  record_use(tensor, stream);
  return tensor;
}

// LibTorch copies between devices on the current stream of the source, ordered with that of the target.
torch::Tensor DeviceReceiver::copied(const torch::Tensor& tensor, const DeviceEvents& ready,
                                     const c10::Stream& stream) {
  const c10::Stream &from = link_streams_.of(tensor.device()), &to = link_streams_.of(stream.device());
  ready.block(from, tensor.device());
  torch::Tensor copy;
  {
    const c10::MultiStreamGuard guard({from, to});
    copy = tensor.to(stream.device(), /*non_blocking=*/true);
  }
  record_use(tensor, from);
  hand_over(copy, to, stream);
  return copy;
}

torch::Tensor DeviceReceiver::receive_from_host(const torch::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || !tensor.is_cpu() || device.is_cpu()) return tensor;
  const c10::Stream& link = link_streams_.of(device);
  torch::Tensor copy;
  {
    const c10::StreamGuard guard(link);
    copy = to_device(tensor, device);
  }
  hand_over(copy, link, current_stream(device));
  return copy;
}

Message DeviceReceiver::receive(Message message) {
  if (message.ready)
    for (Payload& payload : message.payloads) payload.tensor = receive(payload.tensor, *message.ready);
  return message;
}

}  // namespace penstock::transport
