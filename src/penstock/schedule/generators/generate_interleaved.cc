// Interleaved 1F1B (Narayanan et al., arXiv 2104.04473, section 2.2): v stages per rank, placed round robin. A group of
// p micro-batches passes through all chunks before the next group starts. The order has the three phases of 1F1B
// (m = 4, p = 2, v = 2):
//
//   rank 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1  .  2B2  .  2B3 0B2 0B3
//   rank 1 |  .  1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3  .
//
// The bubble is 1F1B's divided by v. Rank r runs 2(p - r - 1) + (v - 1)p forwards before its first pair of F and
// B, and so holds at most one live micro-batch of a chunk more than that.
//
// The paper requires that p divides m. If it does not, the groups differ in size. With fixed phases, a group smaller
// than p would stall, because every chunk waits until its first micro-batch has passed all other ranks, and a larger
// group would need more memory. Such a schedule therefore has no phases: every rank runs its next forward or its next
// backward, whichever is ready first, within the memory of the paper's first rank, pv + p - 1 live micro-batches of
// chunks. Four ways to size the groups are tried until the bubble is no longer than the paper's (m = 3, p = 2, v = 2:
// one group of 3):
//
//   rank 0 | 0F0 0F1 0F2 2F0 2F1  .  2B0 2F2 2B1  .  2B2 0B0 0B1 0B2
//   rank 1 |  .  1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1B0 1B1 1B2  .
//
// If none is as short, the one with the least bubble is used. For v <= 3, its bubble is longer by the F of one chunk at
// p = 2, v = 3 and odd m >= 2p, and by some instructions at v = 3 and p < m < 2p, where pv + p - 1 micro-batches are
// too few. For m < p there is one group of m, and stalls are inevitable.
#include <algorithm>
#include <array>
#include <optional>

#include "penstock/base/error.h"
#include "penstock/base/split.h"
#include "penstock/schedule/generators/interleave_groups.h"
#include "penstock/schedule/simulate.h"

namespace penstock {

namespace {

/// `count` groups whose sizes differ by at most 1, larger ones first.
Groups even(int micro_batches, int count) {
  Groups sizes;
  for (int k = 0; k < count; ++k)
    sizes.push_back(static_cast<int>(split(micro_batches, {.index = k, .of = count}).size()));
  return sizes;
}

/// True if all groups have the same size: p, or m if that is less.
bool has_even_groups(const ScheduleShape& shape) {
  return shape.micro_batches < shape.ranks || shape.micro_batches % shape.ranks == 0;
}

int warm_up(const ScheduleShape& shape, int rank) {
  const int group = std::min(shape.micro_batches, shape.ranks);
  return std::min(shape.chunks * shape.micro_batches, 2 * (shape.ranks - rank - 1) + (shape.chunks - 1) * group);
}

Schedule in_phases(const ScheduleShape& shape) {
  Schedule schedule = placed_round_robin(interleaved_generator.name, shape);
  const std::vector<Pass> passes =
      passes_of(shape, even(shape.micro_batches, std::max(1, shape.micro_batches / shape.ranks)));
  for (Rank rank(0); rank.value() < shape.ranks; rank = rank.next()) {
    Order& order = schedule.orders[rank.index()];
    order.reserve(2 * passes.size());
    const auto warm = static_cast<std::size_t>(warm_up(shape, rank.value()));

    // Warm-up: so many forwards fit in before the first gradient arrives.
    for (std::size_t k = 0; k < warm; ++k) order.push_back(forward_of(shape, rank, passes[k]));
    // Steady: one forward, one backward.
    for (std::size_t k = warm; k < passes.size(); ++k) {
      order.push_back(forward_of(shape, rank, passes[k]));
      order.push_back(backward_of(shape, rank, passes[k - warm]));
    }
    // Cool-down.
    for (std::size_t k = passes.size() - warm; k < passes.size(); ++k)
      order.push_back(backward_of(shape, rank, passes[k]));
  }
  return schedule;
}

/// Ways to size the groups; the one that is best most often comes first.
std::array<Groups, 4> groupings(const ScheduleShape& shape) {
  const int p = shape.ranks;
  const int full = shape.micro_batches / p;
  const int left = shape.micro_batches % p;
  Groups rising = even(shape.micro_batches, full);
  std::reverse(rising.begin(), rising.end());
  Groups large_last(static_cast<std::size_t>(full), p);
  large_last.back() += left;
  Groups small_within(static_cast<std::size_t>(full), p);
  small_within.insert(small_within.begin() + (full + 1) / 2, left);
  return {rising, even(shape.micro_batches, full), small_within, large_last};
}

int memory_of_first_rank(const ScheduleShape& shape) { return shape.ranks * shape.chunks + shape.ranks - 1; }

Schedule without_phases(const ScheduleShape& shape) {
  const StageCosts costs = StageCosts::unit();
  std::optional<Schedule> best;
  double least = 0;
  for (const Groups& groups : groupings(shape)) {
    auto schedule =
        interleave_greedily(shape, groups, {.name = interleaved_generator.name, .most = memory_of_first_rank(shape)});
    if (!schedule) continue;
    const Simulation run = simulate(*schedule, costs);
    const double idle = run.span - *std::max_element(run.busy.begin(), run.busy.end());
    if (best && idle >= least) continue;
    best = std::move(schedule);
    least = idle;
    if (least <= fill_and_drain(shape, costs)) break;
  }
  require<InternalError>(best.has_value(), "no grouping of ", shape.micro_batches, " micro-batches can be interleaved");
  return *std::move(best);
}

Schedule interleaved(const ScheduleShape& shape, const Tuning&) {
  return has_even_groups(shape) ? in_phases(shape) : without_phases(shape);
}

std::vector<int> hold_warm_up(const ScheduleShape& shape, const Tuning&) {
  const int all = shape.chunks * shape.micro_batches;
  if (!has_even_groups(shape)) return for_every_rank(shape, std::min(all, memory_of_first_rank(shape)));
  std::vector<int> bound;
  for (int rank = 0; rank < shape.ranks; ++rank) bound.push_back(std::min(all, warm_up(shape, rank) + 1));
  return bound;
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
    .bubble_time = fill_and_drain,
    .bubble_formula = "(p-1)(F+I+W)/v",
    .memory_formula = "p + (p-1)/v",
    .message_formula = "2(pv-1)m",
};

}  // namespace penstock
