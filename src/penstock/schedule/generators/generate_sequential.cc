// The naive baseline: model parallelism without a pipeline. One micro-batch goes down all stages and comes back
// before the next one starts, so one rank works at a time (m = 2, p = 2):
//
//   rank 0 | 0F0  .   .  0B0 0F1  .   .  0B1
//   rank 1 |  .  1F0 1B0  .   .  1F1 1B1  .
//
// Makespan m * p * (F + B); one live micro-batch per rank.
#include "penstock/schedule/generators/placement.h"

namespace penstock {

namespace {

Schedule sequential(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_in_turns(sequential_generator.name, shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next()) {
    Order& order = schedule.orders[s.index()];
    order.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
    // Stage 0 cannot begin F(i+1) before its own Bi, the last instruction of micro-batch i: nothing overlaps.
    for (MicroBatch i(0); i.value() < shape.micro_batches; i = i.next()) {
      order.push_back(forward(s, i));
      order.push_back(backward(s, i));
    }
  }
  return schedule;
}

std::vector<int> hold_one(const ScheduleShape& shape, const Tuning&) { return for_every_rank(shape, 1); }

}  // namespace

constinit const Generator sequential_generator{
    .name = "sequential",
    .summary = "one rank works at a time: the naive baseline",
    .generate = sequential,
    .activation_bound = hold_one,
    .bubble_formula = "(p-1)m(F+I+W)",
    .memory_formula = "1",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
