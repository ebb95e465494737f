#include "penstock/schedule/generators/v_block.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

namespace penstock {
namespace {

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

}  // namespace

Schedule repeat_block(std::string_view name, const ScheduleShape& shape, const VPattern& pattern) {
  Schedule schedule = placed_in_v(name, shape);
  ListScheduling(shape, pattern).run(schedule);
  return schedule;
}

}  // namespace penstock
