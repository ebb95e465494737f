// Inference and evaluation: forward passes only (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 0F3  .
//   rank 1 |  .  1F0 1F1 1F2 1F3
//
// The makespan is (m + p - 1) F. No activations are saved, so one micro-batch is live per rank. With several stages per
// rank, groups of p micro-batches pass through all stages one after the other, so that few boundary values are waiting
// at a time. The last group also contains the rest of the division, so that no group is smaller (m = 5, p = 2, v = 2):
//
//   rank 0 | 0F0 0F1 2F0 2F1 0F2 0F3 0F4 2F2 2F3 2F4  .
//   rank 1 |  .  1F0 1F1 3F0 3F1 1F2 1F3 1F4 3F2 3F3 3F4
#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

Schedule forward_only(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Order& order = schedule.orders[static_cast<std::size_t>(rank)];
    order.reserve(static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.micro_batches));
    for (int begin = 0, end = 0; begin < shape.micro_batches; begin = end) {
      end = shape.micro_batches - begin < 2 * shape.ranks ? shape.micro_batches : begin + shape.ranks;
      for (int chunk = 0; chunk < shape.chunks; ++chunk)
        for (MicroBatch i(begin); i.value() < end; i = i.next())
          order.push_back(forward(StageId(chunk * shape.ranks + rank), i));
    }
  }
  return schedule;
}

std::vector<int> hold_none_for_backward(const ScheduleShape& shape, const Tuning&) { return for_every_rank(shape, 1); }

double forward_only_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  return (shape.ranks - 1) * costs.forward.front();
}

}  // namespace

extern constinit const ScheduleGenerator forward_only_generator{
    .name = "forward-only",
    .summary = "inference and evaluation: no backward",
    .generate = forward_only,
    .activation_bound = hold_none_for_backward,
    .max_chunks = 64,
    .bubble_time = forward_only_bubble_time,
    .bubble_formula = "(p-1)F/v",
    .memory_formula = "1/v",
    .message_formula = "(pv-1)m",
};

}  // namespace penstock
