// Schedules on a V placement that repeat one building block (Pipeline Parallelism with Controllable Memory: Qi et al.,
// arXiv 2405.15362): two chunks per rank, placed in a V.
//
// V-Half: half of 1F1B's activations. The rank that holds the activations of a micro-batch's first chunk longest holds
// those of its second chunk shortest. On the leg down, a micro-batch takes two units per rank, forward and backward,
// and on the leg up one, so that all ranks hold the same amount (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 0W0 3W1 3F2 0F3 3I2 0I1 0W1 3W2 3F3 3I3 0I2 0W2 0I3 3W3 0W3  .
//   rank 1 |  .  1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 1F2 2F2 2I1 2W1 1I1 1W1 1F3 2F3 2I2 1I2 2I3 1I3 2W2 1W2 2W3 1W3
//
// At F = I = W and m >= 2p the idle time is at most half of 1F1B's. For other costs it is longer, but it does not grow
// with m if W + 2I >= 2F and W + 2F >= 2I.
//
// V-Min: a third of 1F1B's activations. The shortest possible block: a micro-batch takes one unit per rank everywhere
// (m = 4, p = 2):
//
//   rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 0I0 0W0 3I1 3W1 0F3 0I1 0W1 3F2 3I2 3W2  .  0I2 0W2 3F3 3I3 3W3  .  0I3 0W3
//   rank 1 |  .  1F0 2F0 1F1 2F1 2I0 1I0 2W0 1W0 1F2 2I1 1I1 2F2 2W1 1W1 1F3 2I2 1I2 2F3 2W2 1W2  .  2I3 1I3 2W3 1W3
//
// At F = I = W the idle time is at most two thirds of 1F1B's, for any m. The block has no slack: for other costs, every
// micro-batch adds to the idle time.
#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

/// The times at which one rank runs the instructions of micro-batch 0, in units of one instruction; those of
/// micro-batch i follow 6i units later. The four times differ mod 6, so that two of every six units remain for the W's.
/// The time of a micro-batch on a rank, from its F to its W, determines the number of live micro-batches, which does
/// not depend on m.
struct VBlock {
  int forward_down = 0;
  int forward_up = 0;
  int input_grad_up = 0;
  int input_grad_down = 0;
};

struct VPattern {
  std::vector<VBlock> block_of_rank;
  /// The upper bound of live micro-batches of chunks on a rank. The repeated blocks do not exceed it.
  int memory = 0;
  /// W's, which free memory for forwards, keep their position until the last forward on this leg; after that, all other
  /// instructions precede them.
  Leg weights_wait_after = Leg::down;
};

constexpr int block_length = 6;

/// The kinds of instructions of a rank, those of a VBlock first. Each takes the micro-batches in ascending order.
enum Kind : std::size_t {
  forward_down,
  forward_up,
  input_grad_up,
  input_grad_down,
  weight_grad_up,
  weight_grad_down,
  kinds
};

constexpr std::array<Op, kinds> op_of_kind{Op::forward,    Op::forward,     Op::input_grad,
                                           Op::input_grad, Op::weight_grad, Op::weight_grad};
constexpr std::array<Leg, kinds> leg_of{Leg::down, Leg::up, Leg::up, Leg::down, Leg::up, Leg::down};

/// The change of the number of live micro-batches by an instruction of this kind.
constexpr int growth(Kind kind) {
  return op_of_kind[kind] == Op::forward ? 1 : op_of_kind[kind] == Op::weight_grad ? -1 : 0;
}

/// One rank: its plan, which is the repeated block, and its progress in each kind of instruction.
class BlockRank {
 public:
  BlockRank(const VBlock& block, int micro_batches) : micro_batches_(micro_batches) {
    plan_.reserve(kinds * static_cast<std::size_t>(micro_batches));
    for (auto& positions : positions_) positions.reserve(static_cast<std::size_t>(micro_batches));
    repeat(block);
  }

  bool is_done() const { return first_left_ == plan_.size(); }
  bool has_left(Kind kind) const { return next_[kind] < micro_batches_; }
  /// The next micro-batch of `kind`, and its position in the plan.
  int next(Kind kind) const { return next_[kind]; }
  std::size_t position(Kind kind) const { return positions_[kind][static_cast<std::size_t>(next_[kind])]; }

  /// True if the rank can run the next instruction of `kind`, a forward, now and the instructions planned before it
  /// afterwards without exceeding `memory`.
  bool fits(Kind kind, int memory) const {
    int live = live_ + growth(kind);
    for (std::size_t k = first_left_; k < position(kind) && live <= memory; ++k)
      if (!has_run(plan_[k])) live += growth(plan_[k].kind);
    return live <= memory;
  }

  void run(Kind kind) {
    ++next_[kind];
    live_ += growth(kind);
    while (!is_done() && has_run(plan_[first_left_])) ++first_left_;
  }

 private:
  struct Step {
    Kind kind;
    int micro_batch;
  };

  bool has_run(const Step& step) const { return step.micro_batch < next_[step.kind]; }

  void add(const Step& step) {
    positions_[step.kind].push_back(plan_.size());
    plan_.push_back(step);
  }

  /// Plans the four instructions of every block at their times and W's, the oldest first, in the remaining units.
  void repeat(const VBlock& block) {
    const std::array<int, 4> first{block.forward_down, block.forward_up, block.input_grad_up, block.input_grad_down};
    std::deque<Step> weights;
    for (int now = 0; plan_.size() < kinds * static_cast<std::size_t>(micro_batches_); ++now) {
      const auto due = std::find_if(first.begin(), first.end(), [&](int begin) {
        return now >= begin && (now - begin) % block_length == 0 && (now - begin) / block_length < micro_batches_;
      });
      if (due != first.end()) {
        const Step step{static_cast<Kind>(due - first.begin()), (now - *due) / block_length};
        add(step);
        if (step.kind == input_grad_up) weights.push_back({weight_grad_up, step.micro_batch});
        if (step.kind == input_grad_down) weights.push_back({weight_grad_down, step.micro_batch});
      } else if (!weights.empty()) {
        add(weights.front());
        weights.pop_front();
      }
    }
  }

  int micro_batches_;
  std::vector<Step> plan_;
  std::array<std::vector<std::size_t>, kinds> positions_;  // in plan_, by micro-batch
  std::array<int, kinds> next_{};
  std::size_t first_left_ = 0;  // the first instruction of plan_ that has not run
  int live_ = 0;
};

/// Runs all ranks unit by unit. In each unit, a rank runs the first instruction of its plan that is ready. The
/// remaining instruction that was planned earliest is always ready, so the loop ends.
class ListScheduling {
 public:
  ListScheduling(const ScheduleShape& shape, const VPattern& pattern)
      : shape_(shape),
        pattern_(pattern),
        forwards_(2 * pattern.block_of_rank.size(), 0),
        input_grads_(2 * pattern.block_of_rank.size(), 0) {
    for (const VBlock& block : pattern.block_of_rank) ranks_.emplace_back(block, shape.micro_batches);
  }

  void run(Schedule& schedule) {
    std::vector<std::optional<Kind>> choice(ranks_.size());
    while (!std::all_of(ranks_.begin(), ranks_.end(), [](const BlockRank& rank) { return rank.is_done(); })) {
      // First all choose, then all run: the result of an instruction is available to other ranks in the next unit.
      for (std::size_t r = 0; r < ranks_.size(); ++r) choice[r] = choose(Rank(static_cast<std::int32_t>(r)));
      for (std::size_t r = 0; r < ranks_.size(); ++r)
        if (choice[r]) schedule.orders[r].push_back(take(Rank(static_cast<std::int32_t>(r)), *choice[r]));
    }
  }

 private:
  std::optional<Kind> choose(Rank rank) const {
    const BlockRank& state = ranks_[rank.index()];
    const bool weights_wait = !state.has_left(pattern_.weights_wait_after == Leg::down ? forward_down : forward_up);
    const auto precedence = [&](Kind kind) {
      return std::pair(weights_wait && op_of_kind[kind] == Op::weight_grad, state.position(kind));
    };
    std::optional<Kind> first;
    for (std::size_t k = 0; k < kinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      if (!state.has_left(kind) || !is_ready(rank, kind) || (first && precedence(*first) < precedence(kind))) continue;
      if (op_of_kind[kind] == Op::forward && !state.fits(kind, pattern_.memory)) continue;
      first = kind;
    }
    return first;
  }

  bool is_ready(Rank rank, Kind kind) const {
    const StageId stage = stage_in_v(shape_, rank, leg_of[kind]);
    const int i = ranks_[rank.index()].next(kind);
    if (op_of_kind[kind] == Op::forward) return stage == StageId(0) || i < forwards_[stage.previous().index()];
    if (op_of_kind[kind] == Op::weight_grad) return i < input_grads_[stage.index()];
    const bool is_last = stage.next().index() == input_grads_.size();
    return i < (is_last ? forwards_[stage.index()] : input_grads_[stage.next().index()]);
  }

  Instruction take(Rank rank, Kind kind) {
    const StageId stage = stage_in_v(shape_, rank, leg_of[kind]);
    const MicroBatch i(ranks_[rank.index()].next(kind));
    ranks_[rank.index()].run(kind);
    if (op_of_kind[kind] == Op::forward) ++forwards_[stage.index()];
    if (op_of_kind[kind] == Op::input_grad) ++input_grads_[stage.index()];
    return Instruction::compute(op_of_kind[kind], stage, i);
  }

  ScheduleShape shape_;
  const VPattern& pattern_;
  std::vector<BlockRank> ranks_;
  std::vector<int> forwards_, input_grads_;  // by stage: the number of those that have run
};

/// Repeats the block of each rank m times and then compacts the order by list scheduling: every instruction moves into
/// idle time before it if its dependencies are met and the rank stays within `memory`.
Schedule repeat_block(const ScheduleShape& shape, const VPattern& pattern) {
  Schedule schedule = placed_in_zigzag(shape);
  ListScheduling(shape, pattern).run(schedule);
  return schedule;
}

/// (p+2)/2 micro-batches of a whole rank, as a number of live micro-batches of chunks.
int v_half_memory(const ScheduleShape& shape) { return 2 * ((shape.ranks + 2) / 2); }

Schedule v_half(const ScheduleShape& shape, const Tuning&) {
  const int p = shape.ranks;
  const int pause = p % 2 == 0 ? 3 : 0;  // before the backward pass, so that no two instructions coincide
  VPattern pattern{.block_of_rank = {}, .memory = v_half_memory(shape), .weights_wait_after = Leg::down};
  for (int r = 0; r < p; ++r)
    pattern.block_of_rank.push_back({.forward_down = 2 * r,
                                     .forward_up = 3 * p - 2 - r,
                                     .input_grad_up = 3 * p - 1 + pause + 2 * r,
                                     .input_grad_down = 6 * p - 2 + pause - r});
  return repeat_block(shape, pattern);
}

std::vector<int> hold_half(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(2 * shape.micro_batches, v_half_memory(shape)));
}

/// (p+4)/3 micro-batches of a whole rank, as a number of live micro-batches of chunks.
int v_min_memory(const ScheduleShape& shape) { return 2 * ((shape.ranks + 4) / 3); }

Schedule v_min(const ScheduleShape& shape, const Tuning&) {
  const int p = shape.ranks;
  const int pause = p % 3 == 0 ? 2 : 0;  // before the backward pass, so that no two instructions coincide
  VPattern pattern{.block_of_rank = {}, .memory = v_min_memory(shape), .weights_wait_after = Leg::up};
  for (int r = 0; r < p; ++r)
    pattern.block_of_rank.push_back({.forward_down = r,
                                     .forward_up = 2 * p - 1 - r,
                                     .input_grad_up = 2 * p + pause + r,
                                     .input_grad_down = 4 * p - 1 + pause - r});
  return repeat_block(shape, pattern);
}

std::vector<int> hold_third(const ScheduleShape& shape, const Tuning&) {
  return for_every_rank(shape, std::min(2 * shape.micro_batches, v_min_memory(shape)));
}

double v_min_bubble_time(const ScheduleShape& shape, const StageCosts& costs) {
  return 4.0 / 3 * (shape.ranks - 1) * (costs.forward.front() + costs.input_grad.front() + costs.weight_grad.front());
}

}  // namespace

extern constinit const ScheduleGenerator v_half_generator{
    .name = "v-half",
    .summary = "half of 1F1B's activations: two chunks per rank in a V (Qi et al., arXiv 2405.15362)",
    .generate = v_half,
    .activation_bound = hold_half,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 2,
    .bubble_time = fill_and_drain,
    .bubble_formula = "(p-1)(F+I+W)/2 at F = I = W",
    .memory_formula = "min(m, floor((p+2)/2))",
    .message_formula = "4(p-1)m",
};

extern constinit const ScheduleGenerator v_min_generator{
    .name = "v-min",
    .summary = "a third of 1F1B's activations: two chunks per rank in a V (Qi et al., arXiv 2405.15362)",
    .generate = v_min,
    .activation_bound = hold_third,
    .default_chunks = 2,
    .min_chunks = 2,
    .max_chunks = 2,
    .bubble_time = v_min_bubble_time,
    .bubble_formula = "2(p-1)(F+I+W)/3 at F = I = W",
    .memory_formula = "min(m, floor((p+4)/3))",
    .message_formula = "4(p-1)m",
};

}  // namespace penstock
