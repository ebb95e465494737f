// 1F1B with a flush (PipeDream-Flush: Narayanan et al., arXiv 2006.09503, section 3.2): one forward for each later
// stage, then forwards and backwards alternately, then the remaining backwards (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
//   rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
//
// The makespan is (m + p - 1)(F + B), as with GPipe, but stage s holds only min(m, p - s) live micro-batches.
#include <algorithm>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

namespace {

Schedule one_f_one_b(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(one_f_one_b_generator.name, shape);
  const MicroBatch end(shape.micro_batches);
  for (StageId s(0); s.value() < shape.ranks; s = s.next()) {
    Order& order = schedule.orders[s.index()];
    order.reserve(2 * end.index());
    const MicroBatch warm(std::min(shape.micro_batches, shape.ranks - 1 - s.value()));

    // Warm-up: p - 1 - s forwards fit in before the first gradient arrives.
    MicroBatch f(0);
    MicroBatch b(0);
    for (; f < warm; f = f.next()) order.push_back(forward(s, f));
    // Steady: every backward frees the memory for the next forward.
    for (; f < end; f = f.next(), b = b.next()) {
      order.push_back(forward(s, f));
      order.push_back(backward(s, b));
    }
    // Cool-down.
    for (; b < end; b = b.next()) order.push_back(backward(s, b));
  }
  return schedule;
}

}  // namespace

constinit const Generator one_f_one_b_generator{
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
