// Inference and evaluation: every micro-batch goes forward, nothing comes back (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 0F3  .
//   rank 1 |  .  1F0 1F1 1F2 1F3
//
// Makespan (m + p - 1) F; nothing is kept, so one micro-batch is alive per rank.
#include "penstock/schedule/placement.h"

namespace penstock {

namespace {

Schedule forward_only(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_in_turns(forward_only_generator.name, shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next()) {
    Order& order = schedule.orders[s.index()];
    order.reserve(static_cast<std::size_t>(shape.micro_batches));
    for (MicroBatch i(0); i.value() < shape.micro_batches; i = i.next()) order.push_back(forward(s, i));
  }
  return schedule;
}

std::vector<int> hold_one(const ScheduleShape& shape, const Tuning&) { return for_every_rank(shape, 1); }

double bubble_time(const ScheduleShape& shape, const Costs& costs) {
  return (shape.ranks - 1) * costs.forward.front();
}

}  // namespace

constinit const Generator forward_only_generator{
    .name = "forward-only",
    .summary = "inference and evaluation: no backward",
    .generate = forward_only,
    .activation_bound = hold_one,
    .bubble_time = bubble_time,
    .bubble_formula = "(p-1)F",
    .memory_formula = "1",
    .message_formula = "(p-1)m",
};

}  // namespace penstock
