// Lowering: adds sends, receives, the reduction of gradients and the optimiser step to compute instructions.
#pragma once

#include "penstock/schedule/dependencies.h"

namespace penstock {

struct LowerOptions {
  bool reduce = false;  // one REDUCE per stage: sums gradients over replicas or ties; copies of a stage always have it
  bool norm = false;    // one NORM per stage: for clipping by the global norm
  bool step = true;     // one STEP per stage
};

/// Adds, for every link that crosses ranks, a SEND right after the instruction that produces the value and a RECV right
/// before the instruction that needs it. Stages of one rank pass values without a message.
///
/// Adds REDUCE, NORM and STEP as `options` say, except to a forward-only schedule. Without REDUCE and NORM, the STEP of
/// a stage directly follows the instruction that completes its gradients, while they are in the cache. With REDUCE or
/// NORM, all three are placed at the end of each rank's list, because they wait for other ranks.
///
/// Throws ScheduleError if `schedule` is lowered already, for stages or ranks out of range and for invalid links.
Schedule lower(const Schedule& schedule, const Links& links, const LowerOptions& options = {});
/// The same with the links 0>1>2>...
Schedule lower(const Schedule& schedule, const LowerOptions& options = {});

/// Only the compute instructions of `schedule`: the inverse of lower().
Schedule strip(const Schedule& schedule);

}  // namespace penstock
