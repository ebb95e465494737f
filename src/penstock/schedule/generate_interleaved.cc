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
// The paper asks for m divisible by p. Here the orders are read off slots, p of them for every chunk of a group: where
// the last group is smaller than p, slots stay empty, for its micro-batches need p slots to come round.
#include <algorithm>

#include "penstock/schedule/placement.h"

namespace penstock {

namespace {

/// The forwards of all ranks, slot by slot: which chunk, which micro-batch; an empty slot has none. Backwards use the
/// same slots with the chunks in reverse.
struct Slot {
  int chunk = 0;
  MicroBatch micro_batch{0};
  bool filled = false;
};

std::vector<Slot> slots_of(const ScheduleShape& shape) {
  std::vector<Slot> slots;
  for (int begin = 0; begin < shape.micro_batches; begin += shape.ranks)
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int i = begin; i < begin + shape.ranks; ++i)
        slots.push_back({chunk, MicroBatch(i), i < shape.micro_batches});
  return slots;
}

std::size_t warm_up(const ScheduleShape& shape, int rank) {
  return static_cast<std::size_t>(2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * shape.ranks);
}

Schedule interleaved(const ScheduleShape& shape, const Tuning&) {
  Schedule schedule = placed_in_turns(interleaved_generator.name, shape);
  const std::vector<Slot> slots = slots_of(shape);
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Order& order = schedule.orders[static_cast<std::size_t>(rank)];
    order.reserve(2 * static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.micro_batches));
    const auto run_forward = [&](const Slot& slot) {
      if (slot.filled) order.push_back(forward(StageId(slot.chunk * shape.ranks + rank), slot.micro_batch));
    };
    const auto run_backward = [&](const Slot& slot) {
      const int chunk = shape.chunks - 1 - slot.chunk;
      if (slot.filled) order.push_back(backward(StageId(chunk * shape.ranks + rank), slot.micro_batch));
    };
    const std::size_t warm = std::min(slots.size(), warm_up(shape, rank));

    // Warm-up: the first gradient comes back when so many forwards have gone ahead.
    for (std::size_t k = 0; k < warm; ++k) run_forward(slots[k]);
    // Steady: one forward, one backward.
    for (std::size_t k = warm; k < slots.size(); ++k) {
      run_forward(slots[k]);
      run_backward(slots[k - warm]);
    }
    // Cool-down.
    for (std::size_t k = slots.size() - warm; k < slots.size(); ++k) run_backward(slots[k]);
  }
  return schedule;
}

/// The most that are filled of as many slots in a row as lie between a forward and its backward.
std::vector<int> hold_warm_up(const ScheduleShape& shape, const Tuning&) {
  const std::vector<Slot> slots = slots_of(shape);
  std::vector<int> bound;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    const std::size_t window = warm_up(shape, rank) + 1;
    int live = 0;
    int most = 0;
    for (std::size_t k = 0; k < slots.size(); ++k) {
      live += slots[k].filled;
      if (k >= window) live -= slots[k - window].filled;
      most = std::max(most, live);
    }
    bound.push_back(most);
  }
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
