// The data plane of a rank's endpoint: messages with tensors to and from the other ranks of its world.
//
// Guarantees, which one conformance suite checks for every transport:
//   * `send` never blocks; `receive` waits as long as the awaited peer lives (liveness.h, which has tests of its own).
//   * Messages are matched by their tag, so the order of arrival does not matter. A tag is used once.
//   * Sent tensors are detached and from then on read-only for both sides. They arrive dense, with the same dtype,
//     shape, strides and values on every transport. Among threads they share their storage on one device. Between
//     processes they arrive on the CPU, whatever device they were sent from; on the receiver's device between ranks
//     that connect() has joined; where it can join some, those that a rank sends to itself stay on their device.
//   * Tensors on a device are sent as the sender's current stream computes them, and received for the receiver's
//     current stream on its current device (device_hand_over.h). Neither waits for a device. With device channels they
//     do not pass through the memory of the host (device_channels.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <c10/core/Stream.h>

#include "penstock/base/ids.h"
#include "penstock/base/tensor.h"
#include "penstock/transport/tag.h"

namespace penstock {

class DeviceEvents;
class ReceiveMemory;

/// One value of a message. An undefined tensor stands for an absent value or gradient.
struct Payload {
  torch::Tensor tensor;
  bool requires_grad = false;  // whether the receiver should expect to send a gradient back
};

/// All boundary values of one link for one micro-batch, in a fixed order.
struct Message {
  std::vector<Payload> payloads;
  std::int64_t sent_ns = 0;     // steady clock of the sender, set by send; 0 where it is not known
  std::int64_t arrived_ns = 0;  // steady clock of the receiver, set on arrival, from when on it can be received
  /// When tensors on devices are complete, within a process; null where all are on the CPU.
  std::shared_ptr<const DeviceEvents> ready = nullptr;

  /// The transit time in nanoseconds; 0 where unknown.
  std::int64_t transit_ns() const { return sent_ns > 0 && arrived_ns > sent_ns ? arrived_ns - sent_ns : 0; }
};

/// An ordered pair of ranks: `from` sends to `to`.
struct RankPair {
  WorldRank from;
  WorldRank to;

  friend auto operator<=>(const RankPair&, const RankPair&) = default;
};

/// What the messages of a rank have cost until now, beside the bytes of their numbers. Messages within a process cost
/// nothing of this.
struct MessageCosts {
  std::uint64_t sent = 0;       // messages to other processes
  std::uint64_t described = 0;  // of those of a step, the ones whose types and shapes were sent with or before them
  std::uint64_t allocated = 0;  // buffers that were sent or received, and whose memory was not that of an earlier one
};

/// Steps that exchange the same messages, of the same types and shapes, in the same order: *static steps*. Such an object
/// stands for them on each rank. Immutable.
struct StepForm {
  /// What they have in common, for errors: "8 samples".
  std::string name;
  /// The receive buffers of messages to this rank, by tag with step 0 (schedule/receive_buffers.h); messages without one
  /// are received into new memory.
  std::map<Tag, int> buffers = {};
  /// That of these buffers, which the forms of a pipeline share.
  std::shared_ptr<ReceiveMemory> memory = nullptr;
  /// For how many messages of each sender memory is reserved behind those that are taken.
  int posts = 1;
};

/// Used by its own rank's thread; has_device_channels() and message_costs() by any. Messages of Traffic::background are
/// sent and received by one other thread for each pipeline, which waits as the rank's thread does; peers do not see its
/// waits.
class DataPlane {
 public:
  virtual ~DataPlane() = default;

  /// Sends `message` to `to` (which may be this rank itself) and returns at once. Drops a message of a cancelled step.
  /// Throws WorldAborted when the world has been aborted, and TransportError for a tensor that is not strided or a rank
  /// that does not exist. In device channels an abort meanwhile is another TransportError, or an error of their
  /// library.
  virtual void send(WorldRank to, const Tag& tag, Message message) = 0;

  /// Waits for the message with `tag` from `from`. `waiting_for` names the message in errors, e.g. "1RECV_F5".
  /// Throws TransportError when the peer, or a rank that the peer itself waits for, gave no sign of life for the
  /// deadline, and in the other cases of liveness.h ("rank 1 waits for 1RECV_F5 from rank 0, which has given no answer
  /// since 60.0 s, last at 0F5 in step 12 (no sign of life for 60 s)"). Throws WorldAborted, with the reason, when the
  /// world has been aborted, and StepCancelled, with the reason, when the step that `tag` belongs to has been
  /// cancelled.
  virtual Message receive(WorldRank from, const Tag& tag, const std::string& waiting_for) = 0;

  /// Declares the shape of every boundary value of `pipeline` and of its gradient; messages between processes then omit
  /// it. Every rank declares the same shape, before the first such message is sent.
  virtual void declare_shape(std::uint32_t, const std::vector<std::int64_t>&) {}

  /// Once messages have types and shapes that were described before, `described` does not grow. (Of these at most 256
  /// are remembered for each pair of ranks, and none of messages with dozens of tensors: message_formats.h.)
  virtual MessageCosts message_costs() const { return {}; }

  /// Whether tensors on devices travel to other processes without the memory of the host, once their ranks are
  /// connected.
  virtual bool has_device_channels() const { return false; }
  /// What connect() joins.
  struct Connections {
    std::uint32_t pipeline = 0;
    std::vector<RankPair> pairs = {};
    c10::Device device = c10::kCPU;  // of this rank
  };
  /// Connects this rank, whose device is the current one, with the others of `pairs` for the messages of the pipeline;
  /// nothing without device channels. The ranks of a pair call it at the same time, with their common pairs in the same
  /// order. Throws ConfigError where their devices cannot be joined, and otherwise as receive().
  virtual void connect(const Connections&) {}
  /// Waits until the work is done that is queued on a stream of this rank's device, and watches the other ranks
  /// meanwhile, because this work may wait for their transfers. To be called before the host waits for its device in any
  /// way, since nothing else ends such a wait when a rank is stopped. `what` names the wait in errors: "the loss".
  /// Throws TransportError when a rank gave no sign of life for the deadline, wherever in the world it is, and in the
  /// other cases of liveness.h ("rank 1 waits for the loss on its device, behind messages from rank 0, which ..."); and
  /// WorldAborted when the world has been aborted, which ends transfers: what the device has computed is then worth
  /// nothing. A device may compute for any time while the ranks live. Does nothing without device channels: work then
  /// waits for nothing but what has arrived, or for ranks of this process.
  virtual void await_stream(const c10::Stream&, const std::string&) {}

  // Static steps. Every rank calls these for the same steps in the same order; they do nothing without device channels.
  // In the first step of a form the messages are described as ever, and remembered. In the next ones those without
  // tensors on the CPU are not, and no rank waits on the host for their senders before confirm_step().

  /// The messages from here to end_step() that belong to `step` are those of `form`. send() then throws ConfigError for
  /// one that is unlike that of the first step.
  virtual void begin_step(const StepKey&, const std::shared_ptr<const StepForm>&) {}
  /// Waits until the other ranks have sent what this one has received since begin_step(). To be called on every rank
  /// equally often, at the end of its instructions: what is sent less is found before the device is waited for. Throws as
  /// receive(), and ConfigError where another rank has sent less.
  virtual void confirm_step() {}
  /// Between these calls, in a step of which all messages are known, the current stream of the rank's device captures
  /// its work (base/device_graph.h), so that messages between ranks that connect() has joined are not exchanged now but
  /// by each replay. What is sent and received must be on devices; nothing waits for another rank. Throws ConfigError
  /// for a message that cannot be captured.
  virtual void begin_capture() {}
  virtual void end_capture() {}
  /// Instead of end_capture(), where the capture has failed; no further message may be sent or received.
  virtual void abandon_capture() {}
  /// To be called before each replay, which sends and receives what was captured.
  virtual void repeat_capture() {}
  /// Ends a step of `pipeline`. Throws as receive(), and ConfigError where this rank has not sent all messages of the
  /// form.
  virtual void end_step(std::uint32_t) {}
};

}  // namespace penstock
