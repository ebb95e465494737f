// Excludes allocations from the count of activation bytes.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

namespace penstock {

/// While it lives, allocations of this thread do not count as activations (runtime/held_bytes.h). For memory that
/// outlives the micro-batch, such as the cast of a weight.
class Uncounted {
 public:
  Uncounted();

 private:
  c10::DebugInfoGuard guard_;
};

}  // namespace penstock
