// Messages whose tensors stay on their devices, between threads of a process or from a rank to itself
// (device_hand_over.h).
#pragma once

#include <utility>
#include <vector>

#include "penstock/transport/data_plane.h"
#include "penstock/transport/device_hand_over.h"

namespace penstock {

/// `message` with the events that order its tensors, as the calling thread's current streams compute them.
inline Message with_events(Message message) {
  std::vector<torch::Tensor> tensors;
  for (const Payload& payload : message.payloads)
    if (payload.tensor.defined() && !payload.tensor.is_cpu()) tensors.push_back(payload.tensor);
  message.ready = DeviceEvents::of(tensors);
  return message;
}

/// `message` with its tensors for the calling thread's current streams, where it has events.
inline Message taken_over(Message message, DeviceReceiver& receiver) {
  if (message.ready)
    for (Payload& payload : message.payloads) payload.tensor = receiver.receive(payload.tensor, *message.ready);
  return message;
}

}  // namespace penstock
