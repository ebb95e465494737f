// The device of a rank and the stream on which the rank computes.
#pragma once

#include <optional>

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

namespace penstock {

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
