// The memory of a pipeline's receive buffers in static steps (data_plane.h), on the rank's device. The schedule
// assigns the buffers (schedule/receive_buffers.h); each tensor of a message has a part of its own.
//
//   rank's stream   reads buffer 0 for the last time ... + event
//   link stream                                          +-- waits --- receives the next message into buffer 0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include <c10/core/Stream.h>

#include "penstock/base/tensor.h"

namespace penstock {

/// Used on its rank's thread.
class ReceiveMemory {
 public:
  struct Part {
    int buffer = 0;
    std::size_t payload = 0;  // number in its message

    friend auto operator<=>(const Part&, const Part&) = default;
  };

  /// A tensor with the type, sizes and strides of `like` on `device`, in the memory of `part`. The current stream may
  /// write it: it is ordered behind the present work of `reader`, the stream that has read the memory before. Memory
  /// that a tensor still uses, because it outlives what the schedule knows of, is left to that one, and new memory takes
  /// its place.
  torch::Tensor tensor(const Part& part, const torch::Tensor& like, const c10::Stream& reader);

  /// How often memory was allocated.
  std::uint64_t allocations() const { return allocations_; }

 private:
  std::map<Part, torch::Tensor> owners_;  // bytes
  std::uint64_t allocations_ = 0;
};

}  // namespace penstock
