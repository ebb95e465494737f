// A device for tests on machines without an accelerator: host memory and LibTorch's CPU kernels behind the device type
// that LibTorch reserves for other backends (PrivateUse1), under the name "test", with three devices, test:0 to test:2.
//
// Operations run at once on the calling thread, so that their results have the bits of the CPU. Streams and events do
// nothing but keep an order (stream_order.h), and everything that would be a race on a real device is an error:
//   * an operation that reads or overwrites memory without being ordered after its last use;
//   * an operation on memory of another device than the current one, that is, a missing device guard;
//   * memory that is freed while another stream may use it, without record_stream.
// Copies between devices are ordered with the current streams of both, as those of CUDA are. A copy to the host with
// non_blocking writes its result when the host has waited for it; until then the memory contains other bytes.
//
// A program that links it has the device from its start.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "tests/support/stream_order.h"

namespace penstock::test {

inline c10::Device test_device(int index = 0) {
  return {c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(index)};
}

/// The order of all operations on test devices in this process.
StreamOrder& stream_order();

/// Queues an operation on a stream that takes as long as this object lives. Operations behind it run at once as ever, but
/// events that are ordered behind it, on whatever stream, answer that they are not complete, and threads that wait for
/// them wait.
class HeldStream {
 public:
  explicit HeldStream(c10::Stream stream);
  ~HeldStream();
  HeldStream(const HeldStream&) = delete;
  HeldStream& operator=(const HeldStream&) = delete;

  /// Waits until a thread waits for what is behind the operation, or asks for it again and again.
  void wait_for_a_waiter() const;
  /// Whether a thread has waited for it instead of asking.
  bool stops_a_thread() const;

 private:
  const StreamOrder::Operation hold_;
};
}  // namespace penstock::test
