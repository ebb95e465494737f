// 1F1B with every B split into I and W, so that the previous stage can continue while W is still computed. The warm-up
// and the delay of W are what differs.
//
// 1f1b-early: the order and the memory of 1F1B (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1  .  0I0 0W0 0F2 0I1 0W1 0F3 0I2 0W2  .  0I3 0W3
//   rank 1 |  .  1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2 1F3 1I3 1W3  .
//
// Every later stage adds F and I to the delay of the first and the last gradient, but not W: a rank idles for
// (p - 1)(F + I) on its span, and in 1F1B for (p - 1)(F + I + W), for any costs.
//
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
//
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

/// `drift(stage)` is the drift of a stage.
template <class DriftOf>
Schedule alternating(const ScheduleShape& shape, DriftOf&& drift) {
  Schedule schedule = placed_round_robin(shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next())
    schedule.orders[s.index()] = alternating_order(s, MicroBatch(shape.micro_batches), drift(s.value()));
  return schedule;
}

Schedule early_one_f_one_b(const ScheduleShape& shape, const Tuning&) {
  return alternating(shape, [&](int s) { return Drift{.warm_up = shape.ranks - s, .lag = 0}; });
}

Schedule zb_h1(const ScheduleShape& shape, const Tuning&) {
  return alternating(shape, [&](int s) { return Drift{.warm_up = shape.ranks - s, .lag = s}; });
}

Schedule zb_h2(const ScheduleShape& shape, const Tuning&) {
  return alternating(shape, [&](int s) { return Drift{.warm_up = 2 * (shape.ranks - s) - 1, .lag = 2 * s}; });
}

std::vector<int> hold_depth_of_pipeline(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(shape.micro_batches, shape.ranks));
}

std::vector<int> hold_twice_the_depth(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(shape.micro_batches, 2 * shape.ranks - 1));
}

/// (p - 1)(F + I - filled * W), at least 0: that number of W's per stage fill the idle time.
template <int filled>
double idle_between_gradients(const ScheduleShape& shape, const StageCosts& costs) {
  const double per_stage = costs.forward.front() + costs.input_grad.front() - filled * costs.weight_grad.front();
  return (shape.ranks - 1) * std::max(0.0, per_stage);
}

}  // namespace

extern constinit const ScheduleGenerator early_one_f_one_b_generator{
    .name = "1f1b-early",
    .summary = "1f1b whose input gradients leave before the weight gradients are computed",
    .generate = early_one_f_one_b,
    .activation_bound = hold_depth,
    .bubble_time = idle_between_gradients<0>,
    .bubble_formula = "(p-1)(F+I)",
    .memory_formula = "min(m, p)",
    .message_formula = "2(p-1)m",
};

extern constinit const ScheduleGenerator zb_h1_generator{
    .name = "zb-h1",
    .summary = "weight gradients fill the bubble, memory of 1f1b (Qi et al., arXiv 2401.10241)",
    .generate = zb_h1,
    .activation_bound = hold_depth_of_pipeline,
    .bubble_time = idle_between_gradients<1>,
    .bubble_formula = "(p-1)(F+I-W)",
    .memory_formula = "min(m, p)",
    .message_formula = "2(p-1)m",
};

extern constinit const ScheduleGenerator zb_h2_generator{
    .name = "zb-h2",
    .summary = "no bubble if F, I and W cost the same, memory of two 1f1b (Qi et al., arXiv 2401.10241)",
    .generate = zb_h2,
    .activation_bound = hold_twice_the_depth,
    .bubble_time = idle_between_gradients<2>,
    .bubble_formula = "(p-1)(F+I-2W)",
    .memory_formula = "min(m, 2p-1)",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
