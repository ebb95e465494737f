// GPipe (Huang et al., arXiv 1811.06965, section 2.3): all micro-batches forward, a flush, all micro-batches backward
// (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 0F3  .   .  0B0 0B1 0B2 0B3
//   rank 1 |  .  1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3  .
//
// The paper runs the backwards in descending order. Here they ascend, because every parameter accumulates its gradient
// in ascending order in every schedule. The makespan is (m + p - 1)(F + B); a rank holds m live micro-batches.
#include "penstock/schedule/generators/placement.h"

namespace penstock {

namespace {

Schedule gpipe(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(gpipe_generator.name, shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next()) {
    Order& order = schedule.orders[s.index()];
    order.reserve(2 * static_cast<std::size_t>(shape.micro_batches));
    for (MicroBatch i(0); i.value() < shape.micro_batches; i = i.next()) order.push_back(forward(s, i));
    for (MicroBatch i(0); i.value() < shape.micro_batches; i = i.next()) order.push_back(backward(s, i));
  }
  return schedule;
}

std::vector<int> hold_all(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, shape.micro_batches);
}

}  // namespace

constinit const Generator gpipe_generator{
    .name = "gpipe",
    .summary = "all forwards, then all backwards (Huang et al., arXiv 1811.06965)",
    .generate = gpipe,
    .activation_bound = hold_all,
    .bubble_time = fill_and_drain,
    .bubble_formula = "(p-1)(F+I+W)",
    .memory_formula = "m",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
