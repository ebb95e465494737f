// The device that a rank computes on, and the stream on which it computes.
#pragma once

#include <optional>
#include <string>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

namespace penstock {

/// The device called `name`: "cpu"; "cuda" or "cuda:1"; another type that this program has registered with LibTorch;
/// none for "auto". Throws ConfigError for another name.
std::optional<c10::Device> device_named(const std::string& name);

/// `wanted`, or if it is none, CUDA if this process finds a GPU, else the CPU.
c10::Device resolved_device(const std::optional<c10::Device>& wanted);

/// The device of one rank: `wanted` if it has an index, else the device of its type with number local_rank mod the
/// number of devices. `local_rank` counts the ranks of one host. Throws ConfigError for a device that does not exist.
c10::Device device_of(c10::Device wanted, int local_rank);

/// The number of `world_rank` among the ranks of its host: the launcher's local rank, or, without a launcher, the world
/// rank itself.
int local_rank_of(int world_rank);

/// A plain value. On the CPU it has no stream, and all functions do nothing.
class RankDevice {
 public:
  /// Takes a stream of the device's pool.
  explicit RankDevice(c10::Device device);

  c10::Device device() const { return device_; }
  const std::optional<c10::Stream>& stream() const { return stream_; }
  /// The calling thread waits until all work that was queued on the stream is complete.
  void synchronize() const {
    if (stream_) stream_->synchronize();
  }

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
};

/// While it lives, the rank's device is the calling thread's current one, and the rank's stream the current stream of
/// it. Everything that a rank computes runs within one.
class RankDeviceGuard {
 public:
  explicit RankDeviceGuard(const RankDevice& device) {
    if (device.stream()) guard_.emplace(*device.stream());
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

}  // namespace penstock
