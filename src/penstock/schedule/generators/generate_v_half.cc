// V-Half (Pipeline Parallelism with Controllable Memory: Qi et al., arXiv 2405.15362): half of 1F1B's activations. Two
// chunks per rank, placed in a V: the rank that holds the activations of a micro-batch's first chunk longest holds
// those of its second chunk shortest. On the leg down, a micro-batch takes two units per rank, forward and backward,
// and on the leg up one, so that all ranks hold the same amount (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 0W0 3W1 3F2 0F3 3I2 0I1 0W1 3W2 3F3 3I3 0I2 0W2 0I3 3W3 0W3  .
//   rank 1 |  .  1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 1F2 2F2 2I1 2W1 1I1 1W1 1F3 2F3 2I2 1I2 2I3 1I3 2W2 1W2 2W3 1W3
//
// At F = I = W and m >= 2p the idle time is at most half of 1F1B's. For other costs it is longer, but it does not grow
// with m if W + 2I >= 2F and W + 2F >= 2I.
#include <algorithm>

#include "penstock/schedule/generators/v_block.h"

namespace penstock {

namespace {

/// (p+2)/2 micro-batches of a whole rank, as a number of live micro-batches of chunks.
int v_half_memory(const ScheduleShape& shape) { return 2 * ((shape.ranks + 2) / 2); }

Schedule v_half(const ScheduleShape& shape, const Tuning&) {
  const int p = shape.ranks;
  const int pause = p % 2 == 0 ? 3 : 0;  // before the backward pass, so that no two instructions coincide
  VPattern pattern{.block_of_rank = {}, .memory = v_half_memory(shape), .weights_wait_after = Leg::down};
  for (int r = 0; r < p; ++r)
    pattern.block_of_rank.push_back({.forward_down = 2 * r,
                                     .forward_up = 3 * p - 2 - r,
                                     .input_grad_up = 3 * p - 1 + pause + 2 * r,
                                     .input_grad_down = 6 * p - 2 + pause - r});
  return repeat_block(v_half_generator.name, shape, pattern);
}

std::vector<int> hold_half(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(2 * shape.micro_batches, v_half_memory(shape)));
}

}  // namespace

constinit const Generator v_half_generator{
    .name = "v-half",
    .summary = "half of 1F1B's activations: two chunks per rank in a V (Qi et al., arXiv 2405.15362)",
    .generate = v_half,
    .activation_bound = hold_half,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 2,
    .bubble_time = fill_and_drain,
    .bubble_formula = "(p-1)(F+I+W)/2 at F = I = W",
    .memory_formula = "min(m, floor((p+2)/2))",
    .message_formula = "4(p-1)m",
};

}  // namespace penstock
