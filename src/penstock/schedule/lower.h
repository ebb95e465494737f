// From what is computed to what is done: adds sends, receives, reduction and the optimiser step.
#pragma once

#include "penstock/schedule/dependencies.h"

namespace penstock {

struct LowerOptions {
  bool reduce = false;  // REDUCE per stage: gradients are summed over replicas or ties
  bool norm = false;    // NORM per stage: the step clips by the global norm
  bool step = true;     // STEP per stage (never for a forward-only schedule)
};

/// Adds, for every link that crosses ranks, a SEND right after the instruction that produces the value and a RECV right
/// before the first instruction that needs it; and a STEP as soon as its stage's gradients are whole, while they are in the
/// cache. Where REDUCE or NORM come before, all of them stand at the end of each rank's list, by stage: they wait for
/// other ranks, which nothing else should wait for.
/// Stages on one rank hand over without a message. Throws ScheduleError when `schedule` is lowered already.
Schedule lower(const Schedule& schedule, const Links& links, const LowerOptions& options = {});
/// The same along the chain 0>1>2>...
Schedule lower(const Schedule& schedule, const LowerOptions& options = {});

/// The compute instructions alone: undoes `lower`.
Schedule strip(const Schedule& schedule);

}  // namespace penstock
