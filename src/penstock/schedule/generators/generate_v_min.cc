// V-Min (Pipeline Parallelism with Controllable Memory: Qi et al., arXiv 2405.15362): a third of 1F1B's activations.
// Two chunks per rank, placed in a V, and the shortest possible block: a micro-batch takes one unit per rank everywhere
// (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 0I0 0W0 3I1 3W1 0F3 0I1 0W1 3F2 3I2 3W2  .  0I2 0W2 3F3 3I3 3W3  .  0I3 0W3
//   rank 1 |  .  1F0 2F0 1F1 2F1 2I0 1I0 2W0 1W0 1F2 2I1 1I1 2F2 2W1 1W1 1F3 2I2 1I2 2F3 2W2 1W2  .  2I3 1I3 2W3 1W3
//
// At F = I = W the idle time is at most two thirds of 1F1B's, for any m. The block has no slack: for other costs, every
// micro-batch adds to the idle time.
#include <algorithm>

#include "penstock/schedule/generators/v_block.h"

namespace penstock {

namespace {

/// (p+4)/3 micro-batches of a whole rank, as a number of live micro-batches of chunks.
int v_min_memory(const ScheduleShape& shape) { return 2 * ((shape.ranks + 4) / 3); }

Schedule v_min(const ScheduleShape& shape, const Tuning&) {
  const int p = shape.ranks;
  const int pause = p % 3 == 0 ? 2 : 0;  // before the backward pass, so that no two instructions coincide
  VPattern pattern{.block_of_rank = {}, .memory = v_min_memory(shape), .weights_wait_after = Leg::up};
  for (int r = 0; r < p; ++r)
    pattern.block_of_rank.push_back({.forward_down = r,
                                     .forward_up = 2 * p - 1 - r,
                                     .input_grad_up = 2 * p + pause + r,
                                     .input_grad_down = 4 * p - 1 + pause - r});
  return repeat_block(v_min_generator.name, shape, pattern);
}

std::vector<int> hold_third(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(2 * shape.micro_batches, v_min_memory(shape)));
}

double v_min_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  return 4.0 / 3 * (shape.ranks - 1) * (costs.forward.front() + costs.input_grad.front() + costs.weight_grad.front());
}

}  // namespace

constinit const Generator v_min_generator{
    .name = "v-min",
    .summary = "a third of 1F1B's activations: two chunks per rank in a V (Qi et al., arXiv 2405.15362)",
    .generate = v_min,
    .activation_bound = hold_third,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 2,
    .bubble_time = v_min_bubble_time,
    .bubble_formula = "2(p-1)(F+I+W)/3 at F = I = W",
    .memory_formula = "min(m, floor((p+4)/3))",
    .message_formula = "4(p-1)m",
};

}  // namespace penstock
