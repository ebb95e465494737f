// The memory of a pipeline's receive buffers in static steps (data_plane.h), on the rank's device. The schedule
// assigns the buffers (schedule/receive_buffers.h); each tensor of a message has a part of its own.
//
//   rank's stream   reads buffer 0 for the last time ... + event
//   link stream                                          +-- waits --- receives the next message into buffer 0
#pragma once

#include <cstddef>
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

  struct Given {
    torch::Tensor tensor;
    bool is_new = false;  // in memory that was allocated for it
  };
  /// A tensor with the type, sizes and strides of `like` on the device of `reader`, in the memory of `part`. The current
  /// stream may write it: it is ordered behind the present work of `reader`, the stream that has read the memory before.
  /// Where a tensor still uses the memory, because it outlives what the schedule knows of, it keeps it, and new memory
  /// takes its place.
  Given tensor(const Part& part, const torch::Tensor& like, const c10::Stream& reader);
  /// Gives no memory again that it has given until now.
  void forget() { owners_.clear(); }

 private:
  std::map<Part, torch::Tensor> owners_;  // bytes
};

}  // namespace penstock
