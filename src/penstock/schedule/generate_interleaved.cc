// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2): v stages per rank in turns. Micro-batches go
// through in groups of p, a group through all chunks before the next one starts, in 1F1B's three phases
// (m = 4, p = 2, v = 2):
//
//   rank 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1  .  2B2  .  2B3 0B2 0B3
//   rank 1 |  .  1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3  .
//
// The bubble is 1F1B's divided by v. Rank r runs 2(p - r - 1) + (v - 1)p forwards before its first pair, and so holds
// at most one chunk's micro-batch more than that.
//
// The paper asks for m divisible by p. Where it is not, the groups share what is left over, for in a group smaller
// than p every chunk would wait for its first micro-batch to come round (m = 3, p = 2, v = 2: one group of 3):
//
//   rank 0 | 0F0 0F1 0F2 2F0 2F1 2F2 2B0  .  2B1  .  2B2 0B0 0B1 0B2
//   rank 1 |  .  1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1B0 1B1 1B2  .
//
// With G the largest group, p + (m mod p)/(m div p) rounded up, (v - 1)G takes the place of (v - 1)p. With m < p there
// is one group of m, and waiting cannot be helped.
#include <algorithm>

#include "penstock/schedule/placement.h"

namespace penstock {

namespace {

/// As many groups as there are p micro-batches, of nearly one size, larger ones first.
std::vector<int> groups_of(const ScheduleShape& shape) {
  const int count = std::max(1, shape.micro_batches / shape.ranks);
  std::vector<int> sizes(static_cast<std::size_t>(count), shape.micro_batches / count);
  for (int k = 0; k < shape.micro_batches % count; ++k) ++sizes[static_cast<std::size_t>(k)];
  return sizes;
}

int warm_up(const ScheduleShape& shape, int rank) {
  return std::min(shape.chunks * shape.micro_batches,
                  2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * groups_of(shape).front());
}

/// Which chunk of which micro-batch, in the order of the forwards. For backwards the chunks count from the last.
struct Turn {
  int chunk;
  MicroBatch micro_batch;
};

std::vector<Turn> turns_of(const ScheduleShape& shape) {
  std::vector<Turn> turns;
  turns.reserve(static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.micro_batches));
  int begin = 0;
  for (const int size : groups_of(shape)) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int i = begin; i < begin + size; ++i) turns.push_back({chunk, MicroBatch(i)});
    begin += size;
  }
  return turns;
}

Schedule interleaved(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_in_turns(interleaved_generator.name, shape);
  const std::vector<Turn> turns = turns_of(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Order& order = schedule.orders[static_cast<std::size_t>(rank)];
    order.reserve(2 * turns.size());
    const auto run_forward = [&](const Turn& turn) {
      order.push_back(forward(StageId(turn.chunk * shape.ranks + rank), turn.micro_batch));
    };
    const auto run_backward = [&](const Turn& turn) {
      const int chunk = shape.chunks - 1 - turn.chunk;
      order.push_back(backward(StageId(chunk * shape.ranks + rank), turn.micro_batch));
    };
    const auto warm = static_cast<std::size_t>(warm_up(shape, rank));

    // Warm-up: the first gradient comes back when so many forwards have gone ahead.
    for (std::size_t k = 0; k < warm; ++k) run_forward(turns[k]);
    // Steady: one forward, one backward.
    for (std::size_t k = warm; k < turns.size(); ++k) {
      run_forward(turns[k]);
      run_backward(turns[k - warm]);
    }
    // Cool-down.
    for (std::size_t k = turns.size() - warm; k < turns.size(); ++k) run_backward(turns[k]);
  }
  return schedule;
}

std::vector<int> hold_warm_up(const ScheduleShape& shape, const Tuning&) {
  std::vector<int> bound;
  for (int rank = 0; rank < shape.ranks; ++rank)
    bound.push_back(std::min(shape.chunks * shape.micro_batches, warm_up(shape, rank) + 1));
  return bound;
}

double bubble_time(const ScheduleShape& shape, const Costs& costs) {
  return (shape.ranks - 1) * (costs.forward.front() + costs.input_grad.front() + costs.weight_grad.front());
}

}  // namespace

constinit const Generator interleaved_generator{
    .name = "interleaved",
    .summary = "1F1B over several stages per rank (Narayanan et al., arXiv 2104.04473)",
    .generate = interleaved,
    .activation_bound = hold_warm_up,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 64,
    .bubble_time = bubble_time,
    .bubble_formula = "(p-1)(F+I+W)/v",
    .memory_formula = "p + (p-1)/v",
    .message_formula = "2(pv-1)m",
};

}  // namespace penstock
