// Chimera (Li and Hoefler, arXiv 2107.06925): two pipelines over the same ranks in opposite directions, each with a copy
// of all stages. Pipeline 0 leads down the ranks and takes the even micro-batches, pipeline 1 leads up and takes the odd
// ones. One computes while the other one would idle (m = 4, p = 4):
//
//   rank 0 | 0F0 0F2  .  3F1 3B1 3F3 3B3 0B0  .  0B2
//   rank 1 |  .  1F0 2F1 1F2 2F3 2B1 1B0 2B3 1B2  .
//   rank 2 |  .  1F1 2F0 1F3 2F2 2B0 1B1 2B2 1B3  .
//   rank 3 | 0F1 0F3  .  3F0 3B0 3F2 3B2 0B1  .  0B3
//
// The two copies of a stage sum their gradients before its optimiser's step. For m = p and an even p, a rank idles for
// p - 2 backwards at B = 2F: the paper's bubble ratio (D-2)/(3N/2 + D-2), with D = p and N = m. At F = B it is the
// paper's (D-2)/(2N + D-2) for p up to 6; for more ranks the order has up to four idle forwards more. A rank holds
// p/2 + 1 (the first and the last one) to p micro-batches, as in the paper.
//
// The paper appends units of p micro-batches to each other. Here a rank goes on as soon as it has memory, and at B = 2F
// the idle time does not grow with m. Forward doubling and backward halving are left out. The paper requires an even p:
// for an odd one, both copies of the middle stage are on one rank, and the ranks idle longer.
#include <algorithm>

#include "penstock/schedule/generators/greedy_order.h"
#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

Schedule chimera(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(shape);
  schedule.more_pipelines.emplace_back(schedule.rank_of_stage.rbegin(), schedule.rank_of_stage.rend());
  for (int i = 0; i < shape.micro_batches; ++i) schedule.pipeline_of.push_back(i % 2);
  return in_greedy_order(schedule, std::min(shape.micro_batches, shape.ranks));
}

std::vector<int> hold_at_most_1f1b(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(shape.micro_batches, shape.ranks));
}

}  // namespace

extern constinit const ScheduleGenerator chimera_generator{
    .name = "chimera",
    .summary = "two pipelines in opposite directions, two copies of each stage (Li and Hoefler, arXiv 2107.06925)",
    .generate = chimera,
    .activation_bound = hold_at_most_1f1b,
    .single_owner = false,
    .bubble_formula = "(p-2)(I+W) at m = p",
    .memory_formula = "min(m, p)",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
