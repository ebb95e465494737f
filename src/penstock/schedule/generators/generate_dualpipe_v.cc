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
#include <deque>

#include "penstock/schedule/generators/v_order.h"

namespace penstock {

namespace {

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

Schedule dualpipe_v(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_in_v(dualpipe_v_generator.name, shape);
  for (Rank rank(0); rank.value() < shape.ranks; rank = rank.next())
    schedule.orders[rank.index()] = dualpipe_v_order(shape, rank);
  return schedule;
}

std::vector<int> hold_one_more(const ScheduleShape& shape, const Tuning&) {
  std::vector<int> bound;
  for (int rank = 0; rank < shape.ranks; ++rank)
    bound.push_back(std::min({2 * shape.ranks + 1, 2 * shape.micro_batches, shape.micro_batches + 1 + rank}));
  return bound;
}

double dualpipe_v_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  const double b = costs.input_grad.front() + costs.weight_grad.front();
  const double pair = costs.forward.front() + b;
  return (shape.ranks - 1) * (pair + b - 3 * costs.weight_grad.front());
}

}  // namespace

constinit const Generator dualpipe_v_generator{
    .name = "dualpipe-v",
    .summary = "overlapped pairs of forward and backward on a V (cut-in-half of DualPipe, arXiv 2412.19437)",
    .generate = dualpipe_v,
    .activation_bound = hold_one_more,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 2,
    .bubble_time = dualpipe_v_bubble_time,
    .bubble_formula = "(p-1)(F&B+B-3W)/2",
    .memory_formula = "min(m, p+1/2)",
    .message_formula = "4(p-1)m",
};

}  // namespace penstock
