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
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/split.h"
#include "penstock/schedule/generators/placement.h"
#include "penstock/schedule/simulate.h"

namespace penstock {
namespace {

/// The sizes of the groups, in micro-batches. A group passes through all chunks before the next one starts.
using Groups = std::vector<int>;

/// One micro-batch in one chunk. For forwards, chunks count from the first; for backwards from the last.
struct Pass {
  int chunk;
  MicroBatch micro_batch;
};

/// The passes of every rank, in the order of its forwards; its backwards have the same order.
std::vector<Pass> passes_of(const ScheduleShape& shape, const Groups& groups) {
  std::vector<Pass> passes;
  passes.reserve(static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.micro_batches));
  int begin = 0;
  for (const int size : groups) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int i = begin; i < begin + size; ++i) passes.push_back({chunk, MicroBatch(i)});
    begin += size;
  }
  return passes;
}

Instruction forward_of(const ScheduleShape& shape, Rank rank, const Pass& pass) {
  return forward(StageId(pass.chunk * shape.ranks + rank.value()), pass.micro_batch);
}

Instruction backward_of(const ScheduleShape& shape, Rank rank, const Pass& pass) {
  return backward(StageId((shape.chunks - 1 - pass.chunk) * shape.ranks + rank.value()), pass.micro_batch);
}

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
  Schedule schedule = placed_round_robin(shape);
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

int memory_of_first_rank(const ScheduleShape& shape) { return shape.ranks * shape.chunks + shape.ranks - 1; }

/// Simulates all ranks at F = 1 and B = 2. A rank keeps the order of its forwards and of its backwards, and runs
/// whichever of the two next ones is ready first; if both are, it alternates. A forward waits while the rank holds
/// memory_of_first_rank() micro-batches. The time is proportional to instructions x log(ranks).
class GreedyInterleaving {
 public:
  GreedyInterleaving(const ScheduleShape& shape, const Groups& groups)
      : shape_(shape),
        passes_(passes_of(shape, groups)),
        states_(static_cast<std::size_t>(shape.ranks)),
        done_(2, std::vector<int>(static_cast<std::size_t>(shape.ranks * shape.chunks) *
                                      static_cast<std::size_t>(shape.micro_batches),
                                  not_yet)) {}

  /// None if the ranks block each other.
  std::optional<Schedule> run() {
    Schedule schedule = placed_round_robin(shape_);
    for (Order& order : schedule.orders) order.reserve(2 * passes_.size());
    std::set<std::pair<int, int>> ready;  // the begin of the rank's next instruction, and the rank
    const auto update = [&](int rank) {
      RankState& state = states_[static_cast<std::size_t>(rank)];
      if (state.next_begin != not_yet) ready.erase({state.next_begin, rank});
      state.next_begin = next_start(rank);
      if (state.next_begin != not_yet) ready.insert({state.next_begin, rank});
    };
    for (int rank = 0; rank < shape_.ranks; ++rank) update(rank);
    std::size_t instructions = 0;
    while (!ready.empty()) {
      const int rank = ready.begin()->second;
      schedule.orders[static_cast<std::size_t>(rank)].push_back(take(rank));
      ++instructions;
      update(rank);
      // The ranks that may have waited for the instruction: the neighbours in the ring of ranks.
      update((rank + 1) % shape_.ranks);
      update((rank + shape_.ranks - 1) % shape_.ranks);
    }
    if (instructions < 2 * passes_.size() * states_.size()) return std::nullopt;
    return schedule;
  }

 private:
  static constexpr int not_yet = std::numeric_limits<int>::max();

  struct RankState {
    std::size_t forwards = 0;
    std::size_t backwards = 0;
    int clock = 0;
    int next_begin = not_yet;  // of its next instruction
    bool goes_forward = true;  // its next instruction is a forward
    bool went_forward = false;
  };

  /// The end of `instruction`; not_yet if it has not run.
  int& done(const Instruction& instruction) {
    const std::size_t row = instruction.stage().index() * static_cast<std::size_t>(shape_.micro_batches);
    return done_[instruction.op() == Op::forward ? 0 : 1][row + instruction.micro_batch().index()];
  }
  /// The same for an instruction of `stage`; 0 if there is no such stage.
  int end_of(Op op, int stage, MicroBatch i) {
    if (stage < 0 || stage >= shape_.ranks * shape_.chunks) return 0;
    return done(Instruction::compute(op, StageId(stage), i));
  }

  int next_start(int rank) {
    RankState& state = states_[static_cast<std::size_t>(rank)];
    int forward_start = not_yet;
    int backward_start = not_yet;
    const auto live = static_cast<int>(state.forwards - state.backwards);
    if (state.forwards < passes_.size() && live < memory_of_first_rank(shape_)) {
      const Instruction instruction = forward_of(shape_, Rank(rank), passes_[state.forwards]);
      forward_start = end_of(Op::forward, instruction.stage().value() - 1, instruction.micro_batch());
    }
    if (state.backwards < passes_.size()) {
      const Instruction instruction = backward_of(shape_, Rank(rank), passes_[state.backwards]);
      const int own = end_of(Op::forward, instruction.stage().value(), instruction.micro_batch());
      backward_start = std::max(own, end_of(Op::backward, instruction.stage().value() + 1, instruction.micro_batch()));
    }
    const auto from_now = [&](int start) { return start == not_yet ? not_yet : std::max(start, state.clock); };
    forward_start = from_now(forward_start);
    backward_start = from_now(backward_start);
    state.goes_forward = forward_start == backward_start ? !state.went_forward : forward_start < backward_start;
    return std::min(forward_start, backward_start);
  }

  Instruction take(int rank) {
    RankState& state = states_[static_cast<std::size_t>(rank)];
    const Instruction instruction = state.goes_forward ? forward_of(shape_, Rank(rank), passes_[state.forwards++])
                                                       : backward_of(shape_, Rank(rank), passes_[state.backwards++]);
    state.clock = state.next_begin + (state.goes_forward ? 1 : 2);
    state.went_forward = state.goes_forward;
    done(instruction) = state.clock;
    return instruction;
  }

  ScheduleShape shape_;
  std::vector<Pass> passes_;
  std::vector<RankState> states_;
  std::vector<std::vector<int>> done_;  // the ends of forwards and of backwards, by stage and micro-batch
};

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

Schedule without_phases(const ScheduleShape& shape) {
  const StageCosts costs = StageCosts::unit();
  std::optional<Schedule> best;
  double least = 0;
  for (const Groups& groups : groupings(shape)) {
    auto schedule = GreedyInterleaving(shape, groups).run();
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

extern constinit const ScheduleGenerator interleaved_generator{
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
