// Inference and evaluation: every micro-batch goes forward, nothing comes back (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 0F3  .
//   rank 1 |  .  1F0 1F1 1F2 1F3
//
// Makespan (m + p - 1) F; nothing is kept, so one micro-batch is alive per rank.
#include "penstock/schedule/placement.h"

namespace penstock {

Schedule forward_only(const ScheduleShape& shape) {
  Schedule schedule = placed_in_turns("forward-only", shape);
  for (StageId s(0); s.value() < shape.ranks; s = s.next()) {
    Order& order = schedule.orders[s.index()];
    order.reserve(static_cast<std::size_t>(shape.micro_batches));
    for (MicroBatch i(0); i.value() < shape.micro_batches; i = i.next()) order.push_back(forward(s, i));
  }
  return schedule;
}

}  // namespace penstock
