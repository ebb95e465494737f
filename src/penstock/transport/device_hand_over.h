// Tensors on devices, handed over from one thread of a process to another without waiting for the devices: events
// order the streams of both threads.
//
//   thread A, its current stream   producer --- event
//   thread B, its current stream                  +-- waits --- consumer             both on one device
//
//   thread A, device 0             producer --- event
//   thread B, link stream of 0                    +-- waits --- copy
//   thread B, link stream of 1                          (allocates)  +-- event
//   thread B, device 1                                                     +-- waits --- consumer
//
//   CPU                            message
//   thread B, link stream of 1       +-- copy --- event
//   thread B, device 1                              +-- waits --- consumer
//
// A link stream copies while the receiver's own stream still computes. host_staging.h is the way to the CPU.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "penstock/base/tensor.h"
#include "penstock/transport/data_plane.h"

namespace penstock::transport {

/// The present work of the streams on which some tensors are computed. Immutable.
class DeviceEvents {
 public:
  /// Of the current streams of the devices of `tensors`. Null where all are on the CPU.
  static std::shared_ptr<const DeviceEvents> of(const std::vector<torch::Tensor>& tensors);

  /// `stream` waits for the work on the device `of`; the calling thread does not.
  void block(const c10::Stream& stream, c10::Device of) const;
  /// The current streams of the calling thread wait for the work on their devices.
  void block_current_streams() const;

 private:
  std::vector<c10::Event> events_;  // one per device
};

/// The current stream of the calling thread on `device`.
c10::Stream current_stream(c10::Device device);

/// An event behind the present work of `stream`.
c10::Event event_on(const c10::Stream& stream);

/// The memory of `tensor` is not reused before the present work of `stream` is complete, even if it is freed earlier.
void record_use(const torch::Tensor& tensor, const c10::Stream& stream);

/// Memory on `device` for a tensor with the type, sizes and strides of `like`.
torch::Tensor empty_on(c10::Device device, const torch::Tensor& like);

/// The streams on which messages are copied, one of each device. Not thread-safe.
class LinkStreams {
 public:
  const c10::Stream& of(c10::Device device);

 private:
  std::map<c10::DeviceIndex, c10::Stream> streams_;
};

/// `message` with the events that order its tensors, as the calling thread's current streams compute them.
Message with_events(Message message);

/// Receives the tensors of one thread's messages. Used by that thread.
class DeviceReceiver {
 public:
  /// `tensor`, which `ready` orders, for the current stream of the calling thread's current device of that type: itself
  /// or, from another device, a copy. A tensor of the CPU itself.
  torch::Tensor receive(const torch::Tensor& tensor, const DeviceEvents& ready);
  /// A copy of `tensor` for the calling thread's current stream on `device`, where `tensor` is on the CPU and `device`
  /// another one; otherwise `tensor` itself.
  torch::Tensor receive_from_host(const torch::Tensor& tensor, c10::Device device);
  /// `message` with its tensors as receive() returns them, if it has events; otherwise itself.
  Message receive(Message message);

 private:
  torch::Tensor copied(const torch::Tensor& tensor, const DeviceEvents& ready, const c10::Stream& stream);

  LinkStreams link_streams_;
};

}  // namespace penstock::transport
