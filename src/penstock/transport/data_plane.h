// The data plane of a rank's endpoint: messages with tensors to and from the other ranks of its world.
//
// Guarantees, which one conformance suite checks for every transport:
//   * `send` never blocks; `receive` waits as long as the awaited peer lives (liveness.h, which has tests of its own).
//   * Messages are matched by their tag, so the order of arrival does not matter. A tag is used once.
//   * Sent tensors are detached and from then on read-only for both sides. They arrive dense, with the same dtype,
//     shape, strides and values on every transport.
//   * Among threads, tensors share their storage on one device. Between processes they arrive on the CPU, whatever
//     device they were sent from. With device channels (device_channels.h) they arrive on the receiver's device, if
//     connect() has joined the two ranks or a rank sends to itself.
//   * Tensors on a device are sent as the sender's current stream computes them, and received for the receiver's
//     current stream on its current device (device_hand_over.h). Neither waits for a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Stream.h>

#include "penstock/base/ids.h"
#include "penstock/base/tensor.h"
#include "penstock/transport/tag.h"

namespace penstock::transport {
class DeviceEvents;
}  // namespace penstock::transport

namespace penstock {

/// One value of a message. An undefined tensor stands for an absent value or gradient.
struct Payload {
  torch::Tensor tensor;
  bool requires_grad = false;  // whether the receiver should expect to send a gradient back
  /// The sender keeps the memory around a view anyway: it need not be copied to free that (prepare_for_send()).
  bool is_kept = false;
};

/// All boundary values of one link for one micro-batch, in a fixed order.
struct Message {
  std::vector<Payload> payloads;
  std::int64_t sent_ns = 0;     // steady clock of the sender, set by send; 0 if it is not known
  std::int64_t arrived_ns = 0;  // steady clock of the receiver, set on arrival, from when on it can be received
  /// When tensors on devices are complete, within a process; null if all are on the CPU.
  std::shared_ptr<const transport::DeviceEvents> ready = nullptr;

  /// The transit time in nanoseconds; 0 if it is not known.
  std::int64_t transit_ns() const { return sent_ns > 0 && arrived_ns > sent_ns ? arrived_ns - sent_ns : 0; }
};

/// Where the memory of received tensors begins: a multiple of this.
inline constexpr std::size_t tensor_alignment = 64;

/// Prepares a tensor for sending. Every transport does so, so that a receiver computes on the same layout and the same
/// alignment (which changes bits in BLAS) with every transport. The result is detached and dense. A tensor that is
/// dense in a permuted order keeps its strides; one with gaps or overlaps becomes contiguous; a view that would keep a
/// much larger storage alive, or is not aligned, is copied. All others share their storage
/// with the result. An undefined tensor stays undefined. Throws TransportError for tensors that are not strided
/// (sparse, quantized).
torch::Tensor prepare_for_send(const torch::Tensor& tensor);

/// `prepare_for_send` for every payload; views of payloads with is_kept may keep any storage alive.
Message prepare_for_send(Message message);

/// An ordered pair of ranks: `from` sends to `to`.
struct RankPair {
  WorldRank from;
  WorldRank to;

  friend auto operator<=>(const RankPair&, const RankPair&) = default;
};

/// A message that is yet to be sent.
struct SendRequest {
  WorldRank to;
  Tag tag;
  Message message;
};

/// What a pipeline tells its transport before its first message.
struct PipelineChannels {
  std::uint32_t pipeline = 0;
  std::vector<RankPair> pairs = {};  // whose ranks exchange tensors of devices
  c10::Device device = c10::kCPU;    // of this rank
  /// The shape of every boundary value and of its gradient, the same on every rank; messages between processes then
  /// omit it. None: messages carry their shapes.
  std::optional<std::vector<std::int64_t>> boundary_shape = std::nullopt;
};

/// What the messages of a rank to other processes have cost until now, beside the bytes of their numbers.
struct MessageCosts {
  std::uint64_t sent = 0;       // messages
  std::uint64_t described = 0;  // messages of steps whose types and shapes were sent with or before them
  std::uint64_t allocated = 0;  // buffers that were sent or received in memory that was not used before
};

/// Used by its own rank's thread; message_costs() by any. Messages of Traffic::background are sent and received by one
/// other thread for each pipeline, which waits as the rank's thread does; peers do not see its waits.
class DataPlane {
 public:
  virtual ~DataPlane() = default;

  /// Prepares the messages of a pipeline, and joins the devices of the ranks of `pairs` if the transport has device
  /// channels. The ranks of a pair call it at the same time, with their common pairs in the same order. Throws
  /// ConfigError if their devices cannot be joined, and otherwise as receive().
  virtual void connect(const PipelineChannels&) {}

  /// Sends `message` to `to` (which may be this rank itself) and returns at once. Drops a message of a cancelled step.
  /// Throws WorldAborted when the world has been aborted, and TransportError for a tensor that is not strided or a rank
  /// that does not exist. In device channels an abort meanwhile is another TransportError, or an error of their
  /// library.
  virtual void send(WorldRank to, const Tag& tag, Message message) = 0;

  /// Waits for the message with `tag` from `from`. `waiting_for` names the message in errors, e.g. "1RECV_F5".
  /// Throws TransportError when the peer, or a rank that the peer itself waits for, showed no sign of life for the
  /// deadline, and in the other cases of liveness.h ("rank 1 waits for 1RECV_F5 from rank 0, which has not responded
  /// for 60.0 s, last at 0F5 in step 12 (no sign of life for 60 s)"). Throws WorldAborted, with the reason, when the
  /// world has been aborted, and StepCancelled, with the reason, when the step that `tag` belongs to has been
  /// cancelled.
  virtual Message receive(WorldRank from, const Tag& tag, const std::string& waiting_for) = 0;

  /// Whether receive() would return this message without a wait. False for messages in device channels, of which the
  /// host does not know, and after an abort.
  virtual bool has_arrived(WorldRank from, const Tag& tag) = 0;

  /// Waits until the work is done that is queued on a stream of this rank's device, and watches the other ranks
  /// meanwhile, because this work may wait for their transfers. To be called before the host waits for its device in
  /// any way, since nothing else ends such a wait when a rank is stopped. `what` names the wait in errors: "the loss".
  /// Throws TransportError when a rank showed no sign of life for the deadline, and in the other cases of liveness.h
  /// ("rank 1 waits for the loss on its device, after messages from rank 0, which ..."); and WorldAborted when the
  /// world has been aborted: results of the device are then invalid. A device may compute for any time while the ranks
  /// live. Without device channels it does nothing: work then waits only for what has arrived, or for ranks of this
  /// process.
  virtual void await_stream(const c10::Stream&, const std::string&) {}

  /// Zero among threads. Once messages have types and shapes that were described before, `described` does not grow. (Of
  /// these at most 256 are remembered for each pair of ranks, and none of messages with dozens of tensors:
  /// message_formats.h.)
  virtual MessageCosts message_costs() const { return {}; }
};

}  // namespace penstock
