// Schedules on a V placement that repeat one building block (Pipeline Parallelism with Controllable Memory: Qi et al.,
// arXiv 2405.15362). Inside this module only.
#pragma once

#include <string_view>
#include <vector>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

/// The times at which one rank runs the instructions of micro-batch 0, in units of one instruction; those of
/// micro-batch i follow 6i units later. The four times differ mod 6, so that two of every six units remain for the W's.
/// The time of a micro-batch on a rank, from its F to its W, determines the number of live micro-batches, which does
/// not depend on m.
struct VBlock {
  int forward_down = 0;
  int forward_up = 0;
  int input_grad_up = 0;
  int input_grad_down = 0;
};

struct VPattern {
  std::vector<VBlock> block_of_rank;
  /// The upper bound of live micro-batches of chunks on a rank. The repeated blocks do not exceed it.
  int memory = 0;
  /// W's, which free memory for forwards, keep their position until the last forward on this leg; after that, all other
  /// instructions precede them.
  Leg weights_wait_after = Leg::down;
};

/// Repeats the block of each rank m times and then compacts the order by list scheduling: every instruction moves into
/// idle time before it if its dependencies are met and the rank stays within `memory`.
Schedule repeat_block(std::string_view name, const ScheduleShape& shape, const VPattern& pattern);

}  // namespace penstock
