// 1F1B whose input gradients are sent early: the order and the memory of 1F1B, with every B split into I and W, so that
// the previous stage can continue while W is still computed (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1  .  0I0 0W0 0F2 0I1 0W1 0F3 0I2 0W2  .  0I3 0W3
//   rank 1 |  .  1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2 1F3 1I3 1W3  .
//
// Every later stage adds F and I to the delay of the first and the last gradient, but not W: a rank idles for
// (p - 1)(F + I) on its span, and in 1F1B for (p - 1)(F + I + W), for any costs.
#include <algorithm>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

namespace {

Schedule early_one_f_one_b(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(early_one_f_one_b_generator.name, shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next())
    schedule.orders[s.index()] =
        alternating_order(s, MicroBatch(shape.micro_batches), {.warm_up = shape.ranks - s.value(), .lag = 0});
  return schedule;
}

double early_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  return (shape.ranks - 1) * (costs.forward.front() + costs.input_grad.front());
}

}  // namespace

constinit const Generator early_one_f_one_b_generator{
    .name = "1f1b-early",
    .summary = "1f1b whose input gradients leave before the weight gradients are computed",
    .generate = early_one_f_one_b,
    .activation_bound = hold_depth,
    .bubble_time = early_bubble_time,
    .bubble_formula = "(p-1)(F+I)",
    .memory_formula = "min(m, p)",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
