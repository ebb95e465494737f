// The work of a device in one piece: a *graph*. What a thread queues on streams is captured once, without being
// executed, and from then on queued again by one call. The graphs of CUDA have this name; other devices have their like.
//
// LibTorch names graphs by the type of the device (at::GraphImplRegistry). Up to 2.13 it does so for XPU, but not for
// CUDA: a build with the headers of CUDA adds those (cuda_graph.cc), and others have none.
#pragma once

#include <functional>
#include <memory>

#include <ATen/core/GraphImplInterface.h>
#include <c10/core/DeviceType.h>

namespace penstock {

/// Used by one thread. A graph uses the memory that its work has used: that which was allocated in the capture belongs
/// to the graph, other memory must live as long.
class DeviceGraph {
 public:
  /// Whether there are graphs of devices of this type.
  static bool exists_for(c10::DeviceType type);

  /// Whether the calling thread is in capture().
  static bool is_capturing();

  /// REQUIRES: exists_for(type).
  explicit DeviceGraph(c10::DeviceType type);

  /// Captures what `queue` queues on the current stream, which is not the default one of its device, and on streams that
  /// are ordered behind it and before its end. `queue` must not wait for a device. Throws what `queue` throws; then
  /// no call is permitted, and the thread should capture nothing further on this device.
  void capture(const std::function<void()>& queue);
  bool is_captured() const { return is_captured_; }
  /// Queues the captured work on the current stream. REQUIRES: is_captured().
  void replay();

 private:
  void record(const std::function<void()>& queue);

  c10::DeviceType type_;
  std::unique_ptr<at::GraphImplInterface> graph_;
  bool is_captured_ = false;
};

}  // namespace penstock
