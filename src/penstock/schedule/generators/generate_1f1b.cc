// Schedules of whole backwards with one stage per rank: each rank warms up with some forwards, then runs forwards and
// backwards alternately, then the remaining backwards. The length of the warm-up is what differs.
//
// None: sequential, the naive baseline, model parallelism without a pipeline. A micro-batch passes all stages forward
// and backward before the next one starts, so one rank works at a time, and holds one live micro-batch; the makespan is
// m * p * (F + B) (m = 2, p = 2):
//
//   rank 0 | 0F0  .   .  0B0 0F1  .   .  0B1
//   rank 1 |  .  1F0 1B0  .   .  1F1 1B1  .
//
// All: GPipe (Huang et al., arXiv 1811.06965, section 2.3): all micro-batches forward, a flush, all micro-batches
// backward (m = 4, p = 2). The paper runs the backwards in descending order. Here they ascend, because every parameter
// accumulates its gradient in ascending order in every schedule. The makespan is (m + p - 1)(F + B); a rank holds m live
// micro-batches.
//
//   rank 0 | 0F0 0F1 0F2 0F3  .   .  0B0 0B1 0B2 0B3
//   rank 1 |  .  1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3  .
//
// One for each later stage: 1F1B with a flush (PipeDream-Flush: Narayanan et al., arXiv 2006.09503, section 3.2) (m = 4,
// p = 2). The makespan is GPipe's, but stage s holds only min(m, p - s) live micro-batches.
//
//   rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
//   rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
#include <algorithm>

#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

/// The order of a stage whose warm-up has `warm` forwards, at most `end`.
Order warmed_up(StageId stage, MicroBatch end, MicroBatch warm) {
  Order order;
  order.reserve(2 * end.index());
  MicroBatch f(0);
  MicroBatch b(0);
  for (; f < warm; f = f.next()) order.push_back(forward(stage, f));
  // Every backward frees the memory for the next forward.
  for (; f < end; f = f.next(), b = b.next()) {
    order.push_back(forward(stage, f));
    order.push_back(backward(stage, b));
  }
  for (; b < end; b = b.next()) order.push_back(backward(stage, b));
  return order;
}

/// `warm_up(stage)` is the number of forwards in the warm-up of a stage.
template <class WarmUp>
Schedule with_warm_up(const ScheduleShape& shape, WarmUp&& warm_up) {
  Schedule schedule = placed_round_robin(shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next())
    schedule.orders[s.index()] = warmed_up(s, MicroBatch(shape.micro_batches), MicroBatch(warm_up(s)));
  return schedule;
}

// In this order stage 0 begins F(i+1) after its own Bi, which is the last instruction of micro-batch i.
Schedule sequential(const ScheduleShape& shape, const Tuning&) {
  return with_warm_up(shape, [](StageId) { return 0; });
}

Schedule gpipe(const ScheduleShape& shape, const Tuning&) {
  return with_warm_up(shape, [&](StageId) { return shape.micro_batches; });
}

// p - 1 - s forwards fit in before the first gradient arrives.
Schedule one_f_one_b(const ScheduleShape& shape, const Tuning&) {
  return with_warm_up(shape, [&](StageId s) { return std::min(shape.micro_batches, shape.ranks - 1 - s.value()); });
}

std::vector<int> hold_one(const ScheduleShape& shape, const Tuning&) { return for_every_rank(shape, 1); }

std::vector<int> hold_all(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, shape.micro_batches);
}

}  // namespace

extern constinit const ScheduleGenerator sequential_generator{
    .name = "sequential",
    .summary = "one rank works at a time: the naive baseline",
    .generate = sequential,
    .activation_bound = hold_one,
    .bubble_formula = "(p-1)m(F+I+W)",
    .memory_formula = "1",
    .message_formula = "2(p-1)m",
};

extern constinit const ScheduleGenerator gpipe_generator{
    .name = "gpipe",
    .summary = "all forwards, then all backwards (Huang et al., arXiv 1811.06965)",
    .generate = gpipe,
    .activation_bound = hold_all,
    .bubble_time = fill_and_drain,
    .bubble_formula = "(p-1)(F+I+W)",
    .memory_formula = "m",
    .message_formula = "2(p-1)m",
};

extern constinit const ScheduleGenerator one_f_one_b_generator{
    .name = "1f1b",
    .summary = "one forward, one backward (PipeDream-Flush; Narayanan et al., arXiv 2006.09503)",
    .generate = one_f_one_b,
    .activation_bound = hold_depth,
    .bubble_time = fill_and_drain,
    .bubble_formula = "(p-1)(F+I+W)",
    .memory_formula = "min(m, p)",
    .message_formula = "2(p-1)m",
};

}  // namespace penstock
