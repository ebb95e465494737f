// ZB-H1 (Zero Bubble Pipeline Parallelism: Qi et al., arXiv 2401.10241, section 2.1): the order and the peak memory of
// 1F1B. W is delayed by s micro-batches on stage s, where 1F1B leaves memory unused. The delayed weight gradients fill
// the end of the step (m = 4, p = 3):
//
//   rank 0 | 0F0 0F1 0F2  .   .  0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3
//   rank 1 |  .  1F0 1F1  .  1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3
//   rank 2 |  .   .  2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3
//
// The idle time on the span is (p - 1)(F + I - W), a third of 1F1B's if the three costs are equal. This holds for
// C = 0, m >= 2p and W <= F; a longer W delays the forwards, and the idle time is (p - 1)I. Every stage holds min(m, p)
// micro-batches: up to p - s between F and I, the others between I and W. For m < p all W's of the last stages are at
// the end.
#include <algorithm>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

namespace {

Schedule zb_h1(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(zb_h1_generator.name, shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next())
    schedule.orders[s.index()] =
        alternating_order(s, MicroBatch(shape.micro_batches), {.warm_up = shape.ranks - s.value(), .lag = s.value()});
  return schedule;
}

std::vector<int> hold_depth_of_pipeline(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(shape.micro_batches, shape.ranks));
}

double zb_h1_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  const double per_stage = costs.forward.front() + costs.input_grad.front() - costs.weight_grad.front();
  return (shape.ranks - 1) * std::max(0.0, per_stage);
}

}  // namespace

constinit const Generator zb_h1_generator{
    .name = "zb-h1",
    .summary = "weight gradients fill the bubble, memory of 1f1b (Qi et al., arXiv 2401.10241)",
    .generate = zb_h1,
    .activation_bound = hold_depth_of_pipeline,
    .bubble_time = zb_h1_bubble_time,
    .bubble_formula = "(p-1)(F+I-W)",
    .memory_formula = "min(m, p)",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
