// The naive baseline: model parallelism without a pipeline. A micro-batch passes all stages forward and backward before
// the next one starts, so one rank works at a time (m = 2, p = 2):
//
//   rank 0 | 0F0  .   .  0B0 0F1  .   .  0B1
//   rank 1 |  .  1F0 1B0  .   .  1F1 1B1  .
//
// The makespan is m * p * (F + B); a rank holds one live micro-batch.
#include "penstock/schedule/generators/placement.h"

namespace penstock {

namespace {

Schedule sequential(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(sequential_generator.name, shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next()) {
    Order& order = schedule.orders[s.index()];
    order.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
    // In this order stage 0 begins F(i+1) after its own Bi, which is the last instruction of micro-batch i.
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
