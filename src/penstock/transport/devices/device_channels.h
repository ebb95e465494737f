// The device channels of a world of processes: tensors on devices travel between two of them without the memory of the
// host, over a library with the rules of NCCL:
//   * a *device channel* is an ordered pair of ranks, for all messages of all pipelines (schedule/channel.h has one for
//     each direction of a schedule). It is a FIFO: its k-th send meets its k-th receive. There are no tags, no shapes;
//   * a transfer is queued after the present work of a stream, whose later work waits for it; no thread of the host
//     does.
//
// Each message with tensors in a channel has an *announcement*, which is a message through the host: the tag, the
// shapes, and what is on the CPU. It is sent when the message is, so ahead of the device.
//
//   rank 0, thread   F0 SEND_F0 -- announcement k --> F1 ...
//   rank 0, stream      producer --+
//   pair 0>1                       +-- send k ==== receive k --+
//   rank 1, link stream          (allocates) --+               +-- event
//   rank 1, stream                                                  +-- waits --- consumer
//   rank 1, thread          RECV_F0: takes announcement k, queues receive k
//
// A receiver may want messages in another order than that in which they are sent. It then queues the receives of the
// announcements before as well, and keeps their tensors. So every schedule works, shapes may change at any time, and a
// cycle of waits is one of announcements, which the host sees and names.
//
// A step that is cancelled would leave transfers behind whose other end never comes. So in a world with device
// channels ControlPlane::cancel() aborts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <c10/core/DeviceType.h>
#include <c10/util/intrusive_ptr.h>

#include "penstock/transport/joined_processes.h"
#include "penstock/transport/transport.h"

namespace penstock::devices {

/// One process's ends of all its channels. Used by its rank's thread, with the rank's device and stream as the current
/// ones; abort() by any.
class DeviceChannels {
 public:
  virtual ~DeviceChannels() = default;
  DeviceChannels(const DeviceChannels&) = delete;
  DeviceChannels& operator=(const DeviceChannels&) = delete;

  /// The name of the library: "nccl".
  virtual std::string name() const = 0;
  /// Of the tensors that it carries.
  virtual c10::DeviceType device_type() const = 0;
  /// DeviceGroups::needs_own_devices.
  virtual bool needs_own_devices() const = 0;

  /// Connects the two ranks of `pair`, of which this is one, for the messages of `pipeline`. Both ranks call it
  /// at the same time, and every rank for its pairs in the same order. Throws ConfigError if the library cannot join
  /// the two devices.
  virtual void connect(const RankPair& pair, std::uint32_t pipeline) = 0;
  /// Whether the tensors of a message with `tag` between the two travel here.
  virtual bool carries(const RankPair& pair, const Tag& tag) const = 0;

  /// Queues the sends of the message's tensors on devices. Returns its announcement, to be sent to the same rank
  /// through the host.
  virtual SendRequest send(SendRequest request) = 0;
  /// Waits for the announcement with a tag, which arrives through the host.
  using TakeAnnouncement = std::function<Message(const Tag& tag)>;
  /// The message with `tag` from `from`, for the current stream.
  virtual Message receive(WorldRank from, const Tag& tag, const TakeAnnouncement& take) = 0;

  /// Ends all transfers, so that streams that wait for them go on.
  virtual void abort() noexcept = 0;

 protected:
  DeviceChannels() = default;
};

/// The channels of rank `rank` over `groups`, the processes of which meet in `store`.
std::unique_ptr<DeviceChannels> open_device_channels(WorldRank rank, const DeviceGroups& groups,
                                                     const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace penstock::devices
