// Orders the instructions of a placement that has no pattern of phases: the inner step of hanayo and chimera. Inside
// this module only.
#pragma once

#include "penstock/schedule/instruction.h"

namespace penstock {

/// `placed`, which has a placement and no instructions, with an F and a B for every stage and micro-batch.
///
/// The ranks are simulated at F = 1 and B = 2 for every stage. A rank runs the instruction that can begin first; of
/// those that can begin at the same time, F before B or B before F, whichever makes the shorter step, and then the
/// oldest micro-batch. A forward waits if the rank would hold more than `memory` live micro-batches (counted once per
/// stage), or would leave too little of it for the remaining forwards of the oldest unfinished micro-batch. These never
/// wait, so there is no deadlock.
///
/// The time is proportional to instructions x (stages per rank + log(ranks)).
Schedule in_greedy_order(const Schedule& placed, int memory);

}  // namespace penstock
