// What the generators with one stage per rank and a split backward have in common. Inside this module only.
#pragma once

#include "penstock/schedule/order.h"

namespace penstock {

/// How far a stage lets its instructions drift apart, in micro-batches.
struct Drift {
  int warm_up = 1;  // forwards before the first I: F stays so far ahead of I until there are no more
  int lag = 0;      // I stays so far ahead of W until the last I
};

/// The instructions of `stage` for `micro_batches`: forwards for the warm-up, then I, W and F in turns, then the I's and W's
/// that are left. At most `warm_up + lag` micro-batches are alive.
Order alternating_order(StageId stage, MicroBatch micro_batches, Drift drift);

}  // namespace penstock
