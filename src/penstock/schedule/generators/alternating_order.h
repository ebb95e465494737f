// The order that generators with one stage per rank and a split backward share. Inside this module only.
#pragma once

#include "penstock/schedule/order.h"

namespace penstock {

/// The distances between the instructions of a stage, in micro-batches.
struct Drift {
  int warm_up = 1;  // forwards before the first I; F stays so far ahead of I until the last F
  int lag = 0;      // I stays so far ahead of W until the last I
};

/// The instructions of `stage` for `micro_batches` micro-batches: the forwards of the warm-up, then I, W and F
/// alternately, then the remaining I's and W's. At most `warm_up + lag` micro-batches are live.
Order alternating_order(StageId stage, MicroBatch micro_batches, Drift drift);

}  // namespace penstock
