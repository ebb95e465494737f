// Breadth-first pipeline (Lamy-Poirier, arXiv 2211.05953, section 4): v stages per rank, placed round robin, in GPipe's
// order: all micro-batches pass through chunk 0, then all of them through chunk 1, ...; backwards from the last chunk
// to the first (m = 4, p = 2, v = 2):
//
//   rank 0 | 0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3  .   .  2B0 2B1 2B2 2B3 0B0 0B1 0B2 0B3
//   rank 1 |  .  1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3 1B0 1B1 1B2 1B3  .
//
// As in gpipe, backwards ascend. The bubble is GPipe's divided by v; all m micro-batches of every chunk are live
// at the same time. For m < p every chunk waits until its first micro-batch has passed all other ranks, for
// p - m instructions.
#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

Schedule looped_bfs(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_round_robin(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Order& order = schedule.orders[static_cast<std::size_t>(rank)];
    order.reserve(2 * static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.micro_batches));
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (MicroBatch i(0); i.value() < shape.micro_batches; i = i.next())
        order.push_back(forward(StageId(chunk * shape.ranks + rank), i));
    for (int chunk = shape.chunks - 1; chunk >= 0; --chunk)
      for (MicroBatch i(0); i.value() < shape.micro_batches; i = i.next())
        order.push_back(backward(StageId(chunk * shape.ranks + rank), i));
  }
  return schedule;
}

std::vector<int> hold_all_of_every_chunk(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, shape.chunks * shape.micro_batches);
}

}  // namespace

extern constinit const ScheduleGenerator looped_bfs_generator{
    .name = "looped-bfs",
    .summary = "all forwards, chunk after chunk, then all backwards (Lamy-Poirier, arXiv 2211.05953)",
    .generate = looped_bfs,
    .activation_bound = hold_all_of_every_chunk,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 64,
    .bubble_time = fill_and_drain,
    .bubble_formula = "(p-1)(F+I+W)/v",
    .memory_formula = "m",
    .message_formula = "2(pv-1)m",
};

}  // namespace penstock
