// Schedules on a V placement that are defined by phases, with two chunks per rank.
//
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
//
// DualPipeV ("cut in half", Qi et al., Sea AI Lab, https://huggingface.co/blog/ufotalent/cut-in-half; DeepSeek's
// repository DualPipe, dualpipev.py): half of DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1). Two chunks per
// rank in a V, and in the steady phase every forward of one chunk runs as a pair with a backward of the other, each
// hiding the other's communication (m = 4, p = 2; 0F3+ is the first half of a pair):
//
//   rank 0 | 0F0  0F1  0F2  3F0  3I0  3W0  3F1  0F3+ 3B1  3F2+ 0B0  3B2  3F3+ 0B1  3B3  0I2  0W2  0I3  0W3
//   rank 1 |  .   1F0  2F0  1F1  2F1  1F2  2B0  2F2+ 1B0  1F3+ 2B1  2F3+ 1B1  2B2  1B2  2I3  1I3  2W3  1W3
//
// Let F&B be the time of a pair and B = I + W, all for one chunk. The idle time is at most (p-1)(F&B + B - 3W) if
// F <= 2I, W <= 2I, W <= F + I and m >= 2p. simulate() counts F&B = F + B, as if pairs did not overlap. A rank holds
// 2p + 1 live micro-batches, counted per chunk. For m < 2p the order is that of 2p micro-batches, without the missing
// ones.
#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <utility>

#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

/// Appends instructions to the order of one rank. On each leg, each kind of instruction takes the micro-batches in
/// ascending order. Instructions of the micro-batches m, m+1, ... are counted, but not appended. Phases that need many
/// micro-batches therefore also give an order for few: a valid schedule stays valid when micro-batches are removed, and
/// its activations do not grow.
class VOrder {
 public:
  VOrder(const ScheduleShape& shape, Rank rank) : shape_(shape), rank_(rank) {}

  void forward(Leg leg) { put(next_forward(leg)); }
  void backward(Leg leg) { put(next_backward(leg)); }
  void input_grad(Leg leg) { put(penstock::input_grad(stage(leg), next(input_grads_, leg))); }
  void weight_grad(Leg leg) { put(penstock::weight_grad(stage(leg), next(weight_grads_, leg))); }
  /// Both as one overlap pair.
  void forward_backward(Leg forward_leg, Leg backward_leg) {
    const Instruction f = next_forward(forward_leg);
    const Instruction b = next_backward(backward_leg);
    put(is_in_step(b) ? f.overlapping_next() : f);
    put(b);
  }

  Order take() { return std::move(order_); }

 private:
  using PerLeg = std::array<MicroBatch, 2>;

  StageId stage(Leg leg) const { return stage_in_v(shape_, rank_, leg); }
  static MicroBatch next(PerLeg& counter, Leg leg) {
    MicroBatch& i = counter[static_cast<std::size_t>(leg)];
    return std::exchange(i, i.next());
  }
  Instruction next_forward(Leg leg) { return penstock::forward(stage(leg), next(forwards_, leg)); }
  Instruction next_backward(Leg leg) {
    next(weight_grads_, leg);
    return penstock::backward(stage(leg), next(input_grads_, leg));
  }

  bool is_in_step(const Instruction& instruction) const {
    return instruction.micro_batch().value() < shape_.micro_batches;
  }
  void put(const Instruction& instruction) {
    if (is_in_step(instruction)) order_.push_back(instruction);
  }

  ScheduleShape shape_;
  Rank rank_;
  Order order_;
  PerLeg forwards_, input_grads_, weight_grads_;  // the next micro-batch of each
};

Schedule from_orders(const ScheduleShape& shape, Order (*order_of)(const ScheduleShape&, Rank)) {
  Schedule schedule = placed_in_zigzag(shape);
  for (Rank rank(0); rank.value() < shape.ranks; rank = rank.next())
    schedule.orders[rank.index()] = order_of(shape, rank);
  return schedule;
}

/// At most 1F1B's memory, 2p live micro-batches of chunks, and `more`.
template <int more>
std::vector<int> hold_as_1f1b(const ScheduleShape& shape, const Tuning&) {
  std::vector<int> bound;
  for (int rank = 0; rank < shape.ranks; ++rank)
    bound.push_back(std::min({2 * shape.ranks + more, 2 * shape.micro_batches, shape.micro_batches + 1 + rank}));
  return bound;
}

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

Schedule zb_v(const ScheduleShape& shape, const Tuning&) { return from_orders(shape, zb_v_order); }

/// Zero for equal F, I and W, as in the paper. For other costs, which the paper does not cover: 2(p - 1) times the
/// difference between the longest and the shortest of the three.
double zb_v_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  const auto [least, most] = std::minmax({costs.forward.front(), costs.input_grad.front(), costs.weight_grad.front()});
  return 2 * (shape.ranks - 1) * (most - least);
}

/// The eight steps of the source, in the same order.
Order dualpipe_v_order(const ScheduleShape& shape, Rank rank) {
  VOrder order(shape, rank);
  std::deque<Leg> waiting;  // the legs of pending W's
  const auto input_grad = [&](Leg leg) {
    order.input_grad(leg);
    waiting.push_back(leg);
  };
  const auto weight_grad = [&] {
    order.weight_grad(waiting.front());
    waiting.pop_front();
  };

  const int below = shape.ranks - 1 - rank.value();
  const int from_top = rank.value() + 1;
  const int all = std::max(shape.micro_batches, 2 * shape.ranks);

  // 1 and 2, warm-up: forwards on the leg down until the first micro-batch returns on the leg up, then on both legs.
  for (int k = 0; k < 2 * below; ++k) order.forward(Leg::down);
  for (int k = 0; k < from_top; ++k) {
    order.forward(Leg::down);
    order.forward(Leg::up);
  }
  // 3: the gradient has arrived. There is no forward to pair it with, so its I runs before its W.
  for (int k = 0; k < below; ++k) {
    input_grad(Leg::up);
    weight_grad();
    order.forward(Leg::up);
  }
  // 4, steady: pairs. Only the very first backward, for which every rank waits, is not in a pair.
  for (int k = 0; k < all - 2 * shape.ranks + from_top; ++k) {
    if (k == 0 && below == 0) {
      order.forward(Leg::down);
      order.backward(Leg::up);
    } else {
      order.forward_backward(Leg::down, Leg::up);
    }
    order.forward_backward(Leg::up, Leg::down);
  }
  // 5: no more forwards on the leg down.
  for (int k = 0; k < below; ++k) {
    order.backward(Leg::up);
    order.forward_backward(Leg::up, Leg::down);
  }
  // 6, cool-down: backwards of both legs; W's are delayed in the second half.
  for (int k = 0; k < 2 * from_top; ++k) {
    const Leg leg = k % 2 == 0 ? Leg::up : Leg::down;
    k < from_top ? order.backward(leg) : input_grad(leg);
  }
  // 7 and 8: W's fill the gaps between the last input gradients; the remaining ones come last.
  for (int k = 0; k < below; ++k) {
    weight_grad();
    input_grad(Leg::down);
  }
  for (int k = 0; k < from_top; ++k) weight_grad();
  return order.take();
}

Schedule dualpipe_v(const ScheduleShape& shape, const Tuning&) { return from_orders(shape, dualpipe_v_order); }

double dualpipe_v_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  const double b = costs.input_grad.front() + costs.weight_grad.front();
  const double pair = costs.forward.front() + b;
  return (shape.ranks - 1) * (pair + b - 3 * costs.weight_grad.front());
}

}  // namespace

extern constinit const ScheduleGenerator zb_v_generator{
    .name = "zb-v",
    .summary = "zero bubble in 1F1B's memory: two chunks per rank in a V (Qi et al., arXiv 2401.10241)",
    .generate = zb_v,
    .activation_bound = hold_as_1f1b<0>,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 2,
    .bubble_time = zb_v_bubble_time,
    .bubble_formula = "0 at F = I = W",
    .memory_formula = "min(m, p)",
    .message_formula = "4(p-1)m",
};

extern constinit const ScheduleGenerator dualpipe_v_generator{
    .name = "dualpipe-v",
    .summary = "overlapped pairs of forward and backward on a V (cut-in-half of DualPipe, arXiv 2412.19437)",
    .generate = dualpipe_v,
    .activation_bound = hold_as_1f1b<1>,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 2,
    .bubble_time = dualpipe_v_bubble_time,
    .bubble_formula = "(p-1)(F&B+B-3W)/2",
    .memory_formula = "min(m, p+1/2)",
    .message_formula = "4(p-1)m",
};

}  // namespace penstock
