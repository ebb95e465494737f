// ZB-V (Zero Bubble Pipeline Parallelism: Qi et al., arXiv 2401.10241, section 6): two chunks per rank, placed in a V,
// so that the backward pass of a micro-batch begins on the rank where its forward pass began. The ranks that hold
// activations first then free them first, and the memory of 1F1B, p micro-batches, is enough for a schedule without a
// bubble (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3  .
//   rank 1 |  .  1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3
//
// At F = I = W and m >= 2p - 1 every rank works without a pause from its first instruction to its last. For fewer
// micro-batches the order is that of 2p - 1 without the others, so that the cool-down directly follows the warm-up.
#include <algorithm>

#include "penstock/schedule/generators/v_order.h"

namespace penstock {

namespace {

Order zb_v_order(const ScheduleShape& shape, Rank rank) {
  VOrder order(shape, rank);
  const int above = rank.value();
  const int from_here = shape.ranks - above;  // ranks from this one to the last one
  const int all = std::max(shape.micro_batches, 2 * shape.ranks - 1);

  // Warm-up: forwards on the leg down until the first micro-batch returns on the leg up ...
  int down = 0;
  for (; down < 2 * from_here - 1; ++down) order.forward(Leg::down);
  // ... then on both legs until the first gradient arrives on the leg up ...
  for (int k = 0; k < above; ++k, ++down) {
    order.forward(Leg::up);
    order.forward(Leg::down);
  }
  // ... then F, I and W on the leg up until the first gradient arrives on the leg down.
  for (int k = 0; k < from_here; ++k) {
    order.forward(Leg::up);
    order.input_grad(Leg::up);
    order.weight_grad(Leg::up);
  }
  // Steady: F, I and W on both legs while forwards remain.
  for (int up = shape.ranks; up < all; ++up) {
    if (down++ < all) order.forward(Leg::down);
    order.input_grad(Leg::down);
    order.weight_grad(Leg::down);
    order.forward(Leg::up);
    order.input_grad(Leg::up);
    order.weight_grad(Leg::up);
  }
  // Cool-down: input gradients first, because the ranks above wait for them; W's fill the gaps and the end.
  for (int k = 0; k < above; ++k) {
    order.input_grad(Leg::down);
    order.input_grad(Leg::up);
  }
  for (int k = 0; k < from_here; ++k) {
    order.input_grad(Leg::down);
    order.weight_grad(Leg::down);
  }
  for (int k = 0; k < above; ++k) order.weight_grad(Leg::up);
  for (int k = 0; k < above; ++k) order.weight_grad(Leg::down);
  return order.take();
}

Schedule zb_v(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_in_v(zb_v_generator.name, shape);
  for (Rank rank(0); rank.value() < shape.ranks; rank = rank.next())
    schedule.orders[rank.index()] = zb_v_order(shape, rank);
  return schedule;
}

std::vector<int> hold_as_1f1b(const ScheduleShape& shape, const Tuning&) {
  std::vector<int> bound;
  for (int rank = 0; rank < shape.ranks; ++rank)
    bound.push_back(std::min({2 * shape.ranks, 2 * shape.micro_batches, shape.micro_batches + 1 + rank}));
  return bound;
}

/// Zero for equal F, I and W, as in the paper. For other costs, which the paper does not cover: 2(p - 1) times the
/// difference between the longest and the shortest of the three.
double zb_v_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  const auto [least, most] = std::minmax({costs.forward.front(), costs.input_grad.front(), costs.weight_grad.front()});
  return 2 * (shape.ranks - 1) * (most - least);
}

}  // namespace

constinit const Generator zb_v_generator{
    .name = "zb-v",
    .summary = "zero bubble in 1F1B's memory: two chunks per rank in a V (Qi et al., arXiv 2401.10241)",
    .generate = zb_v,
    .activation_bound = hold_as_1f1b,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 2,
    .bubble_time = zb_v_bubble_time,
    .bubble_formula = "0 at F = I = W",
    .memory_formula = "min(m, p)",
    .message_formula = "4(p-1)m",
};

}  // namespace penstock
