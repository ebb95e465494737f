// Allocations that are nobody's activation.
#pragma once

#include <c10/util/ThreadLocalDebugInfo.h>

namespace penstock {

/// While it lives, what this thread allocates does not count as activations (runtime/held_bytes.h): it outlives the
/// micro-batch, a cast of a weight for instance.
class Uncounted {
 public:
  Uncounted();

 private:
  c10::DebugInfoGuard guard_;
};

}  // namespace penstock
