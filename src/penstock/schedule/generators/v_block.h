// Schedules on a V placement that repeat one building block (Pipeline Parallelism with Controllable Memory: Qi et al.,
// arXiv 2405.15362). Inside this module only.
#pragma once

#include <string_view>
#include <vector>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

/// When one rank runs the instructions of micro-batch 0, in units of one instruction; micro-batch i follows 6i later. No two of the
/// four agree mod 6: of each six units two are left for the W's. How long a micro-batch stays on a rank, from its F to
/// its W, decides how many are there at once, whatever their number.
struct VBlock {
  int forward_down = 0;
  int forward_up = 0;
  int input_grad_up = 0;
  int input_grad_down = 0;
};

struct VPattern {
  std::vector<VBlock> block_of_rank;
  /// The most activations of a chunk that a rank holds; the blocks keep to it by themselves.
  int memory = 0;
  /// W's, which make space for forwards, keep their place until the last forward on this leg; then they let the other
  /// instructions go first.
  Leg weights_wait_after = Leg::down;
};

/// The block of each rank, m times over, then squeezed: every instruction moves up into idle time before it, where what it
/// needs is there and the rank still holds no more than `memory` to the end.
Schedule repeat_block(std::string_view name, const ScheduleShape& shape, const VPattern& pattern);

}  // namespace penstock
