// ZB-H2 (Zero Bubble Pipeline Parallelism: Qi et al., arXiv 2401.10241, section 2.2): nearly twice the warm-up of 1F1B
// fills the time until the first gradient arrives with forwards, and W is delayed by 2s micro-batches on stage s, so
// that all ranks work without a gap (m = 6, p = 3):
//
//   rank 0 | 0F0 0F1 0F2 0F3 0F4 0I0 0W0 0F5 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5  .   .
//   rank 1 |  .  1F0 1F1 1F2 1I0 1F3 1I1 1F4 1I2 1W0 1F5 1I3 1W1 1I4 1W2 1I5 1W3 1W4 1W5  .
//   rank 2 |  .   .  2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2F4 2I4 2W0 2F5 2I5 2W1 2W2 2W3 2W4 2W5
//
// The idle time on the span is (p - 1)(F + I - 2W), none if the three costs are equal. This holds for C = 0, m >= 2p
// and W <= F. Every stage holds min(m, 2p - 1) micro-batches: up to 2(p - s) - 1 between F and I, the others between I
// and W. For m < 2p the first stages run all forwards first; for m <= 2 the order is ZB-H1's.
#include <algorithm>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

namespace {

Schedule zb_h2(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(zb_h2_generator.name, shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next())
    schedule.orders[s.index()] = alternating_order(
        s, MicroBatch(shape.micro_batches), {.warm_up = 2 * (shape.ranks - s.value()) - 1, .lag = 2 * s.value()});
  return schedule;
}

std::vector<int> hold_twice_the_depth(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(shape.micro_batches, 2 * shape.ranks - 1));
}

double zb_h2_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  const double per_stage = costs.forward.front() + costs.input_grad.front() - 2 * costs.weight_grad.front();
  return (shape.ranks - 1) * std::max(0.0, per_stage);
}

}  // namespace

constinit const Generator zb_h2_generator{
    .name = "zb-h2",
    .summary = "no bubble if F, I and W cost the same, memory of two 1f1b (Qi et al., arXiv 2401.10241)",
    .generate = zb_h2,
    .activation_bound = hold_twice_the_depth,
    .bubble_time = zb_h2_bubble_time,
    .bubble_formula = "(p-1)(F+I-2W)",
    .memory_formula = "min(m, 2p-1)",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
