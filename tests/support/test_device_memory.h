// The memory and the streams of the test device, as its operators use them.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include "tests/support/stream_order.h"

namespace penstock::test {

/// Allocates memory of the host for the current test device, on its current stream.
c10::Allocator& test_device_allocator();
/// `cpu_memory` as memory of test device number `device`, on its current stream.
c10::DataPtr as_device_memory(c10::Storage cpu_memory, int device);

StreamNumber number_of(const c10::Stream& stream);
int current_test_device();
/// The current stream of the current test device, or of number `device`.
StreamNumber current_test_stream();
StreamNumber current_test_stream(int device);
/// The generator from which operators draw that were given none. It draws as that of the CPU.
const at::Generator& test_device_generator(int device);

/// Makes a test device the current one while it lives.
class CurrentTestDevice {
 public:
  explicit CurrentTestDevice(int device);
  ~CurrentTestDevice();
  CurrentTestDevice(const CurrentTestDevice&) = delete;
  CurrentTestDevice& operator=(const CurrentTestDevice&) = delete;

 private:
  int before_;
};

/// Writes `bytes` bytes of `data` to `to` when the host has waited for the present work of `stream`.
void write_later(c10::Storage to, std::size_t offset, std::vector<char> data, StreamNumber stream);

/// The calling thread waits for the present work of `stream`; counted under `operation`.
void wait_for(const char* operation, StreamNumber stream);

}  // namespace penstock::test
