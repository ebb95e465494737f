// Hanayo (Liu, Cheng, Zhou and You, arXiv 2308.15762): waves. v stages per rank are placed in a zigzag, down the ranks
// 0..p-1, up again, and so on: two chunks are one wave, and the paper's W is v/2. At a turn of the zigzag, both stages
// are on one rank and need no message (m = 4, p = 2, v = 2, which is one wave):
//
//   rank 0 | 0F0 0F1 0F2 3F0 3B0 3F1 3B1 0F3 0B0 3F2 3B2  .  0B1 3F3 3B3 0B2  .  0B3
//   rank 1 |  .  1F0 2F0 1F1 2F1 2B0 1F2 1B0 2F2 2B1 1F3 1B1 2F3 2B2 1B2 2B3 1B3  .
//
// The order is found by simulating the ranks (greedy_order.h), within 1F1B's memory. For m = p and one wave, a rank idles
// for 2(p-1) backwards of a chunk at B = 2F, (2P-2)/(3PW + 2P-2) of the makespan, which is less than the paper's
// (2P-2)/(3PW + P-1). Then the idle time does not grow with m. For more waves it does, and at m = p it exceeds 2(p-1)
// backwards of a chunk by at most a tenth.
#include <algorithm>

#include "penstock/schedule/generators/greedy_order.h"
#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

/// 1F1B's memory: p micro-batches of a whole rank.
int hanayo_memory(const ScheduleShape& shape) { return shape.chunks * std::min(shape.micro_batches, shape.ranks); }

Schedule hanayo(const ScheduleShape& shape, const Tuning&) {
  return in_greedy_order(placed_in_zigzag(shape), hanayo_memory(shape));
}

std::vector<int> hold_as_1f1b_everywhere(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, hanayo_memory(shape));
}

}  // namespace

extern constinit const ScheduleGenerator hanayo_generator{
    .name = "hanayo",
    .summary = "waves over v/2 zigzags of stages (Hanayo; Liu et al., arXiv 2308.15762)",
    .generate = hanayo,
    .activation_bound = hold_as_1f1b_everywhere,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 16,
    .bubble_formula = "2(p-1)(I+W)/v at m = p",
    .memory_formula = "min(m, p)",
    .message_formula = "2(p-1)vm",
};

}  // namespace penstock
