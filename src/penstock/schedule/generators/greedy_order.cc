#include "penstock/schedule/generators/greedy_order.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/schedule/generators/placement.h"

namespace penstock {
namespace {

class GreedyOrder {
 public:
  /// `preferred` is F or B: what runs first of instructions that can begin at the same time.
  GreedyOrder(const Schedule& placed, int memory, Op preferred)
      : schedule_(placed),
        memory_(memory),
        preferred_(preferred),
        micro_batches_(static_cast<std::size_t>(placed.pipeline_count())),
        finished_(micro_batches_.size(), 0),
        ranks_(placed.orders.size()) {
    for (int i = 0; i < placed.micro_batches; ++i) micro_batches_[pipeline_of(i)].push_back(i);
    for (std::size_t pipeline = 0; pipeline < micro_batches_.size(); ++pipeline)
      for (int stage = 0; stage < placed.stage_count(); ++stage) {
        const Rank rank = placed.placement(static_cast<int>(pipeline))[static_cast<std::size_t>(stage)];
        ranks_[rank.index()].copies.push_back({.pipeline = pipeline, .stage = stage});
      }
    for (std::vector<int>& of_op : ends_)
      of_op.assign(static_cast<std::size_t>(placed.stage_count()) * static_cast<std::size_t>(placed.micro_batches),
                   not_yet);
  }

  Schedule run() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) choose(rank);
    std::size_t instructions = 0;
    for (; !ready_.empty(); ++instructions) take(ready_.begin()->second);
    require<InternalError>(instructions == 2 * ends_[0].size(), "the greedy order stopped after ", instructions,
                           " instructions");
    return std::move(schedule_);
  }

  /// The end of the last instruction.
  int makespan() const { return makespan_; }

 private:
  static constexpr int not_yet = std::numeric_limits<int>::max();

  /// One copy of a stage, and how many of the micro-batches of its pipeline have passed it.
  struct Copy {
    std::size_t pipeline;
    int stage;
    std::size_t forwards = 0;
    std::size_t backwards = 0;
  };

  struct Choice {
    int begin = not_yet;
    bool is_second = false;  // not the preferred operation
    int micro_batch = 0;
    Op op = Op::forward;
    std::size_t copy = 0;

    friend bool operator<(const Choice& a, const Choice& b) {
      return std::tie(a.begin, a.is_second, a.micro_batch) < std::tie(b.begin, b.is_second, b.micro_batch);
    }
  };

  struct RankState {
    std::vector<Copy> copies;
    int clock = 0;
    int live = 0;
    Choice choice;
  };

  std::size_t pipeline_of(int i) const {
    return schedule_.pipeline_of.empty() ? 0
                                         : static_cast<std::size_t>(schedule_.pipeline_of[static_cast<std::size_t>(i)]);
  }

  int& end(Op op, int stage, int i) {
    return ends_[op == Op::forward ? 0 : 1]
                [static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule_.micro_batches) +
                 static_cast<std::size_t>(i)];
  }

  /// The time at which what the instruction needs is there.
  int inputs_end(Op op, int stage, int i) {
    if (op == Op::forward) return stage == 0 ? 0 : end(op, stage - 1, i);
    return stage + 1 == schedule_.stage_count() ? end(Op::forward, stage, i) : end(op, stage + 1, i);
  }

  /// The first micro-batch that has not ended; m if all have.
  int oldest() const {
    int oldest = schedule_.micro_batches;
    for (std::size_t pipeline = 0; pipeline < finished_.size(); ++pipeline)
      if (finished_[pipeline] < micro_batches_[pipeline].size())
        oldest = std::min(oldest, micro_batches_[pipeline][finished_[pipeline]]);
    return oldest;
  }

  /// Finds the next instruction of a rank.
  void choose(std::size_t rank) {
    RankState& state = ranks_[rank];
    if (state.choice.begin != not_yet) ready_.erase({state.choice, rank});
    state.choice = {};
    const auto has_forward = [&](const Copy& copy) { return copy.forwards < micro_batches_[copy.pipeline].size(); };
    const auto next_forward = [&](const Copy& copy) { return micro_batches_[copy.pipeline][copy.forwards]; };
    const int first = oldest();
    const auto reserved = std::ranges::count_if(state.copies, [&](const Copy& copy) {
      return has_forward(copy) && next_forward(copy) <= first && pipeline_of(first) == copy.pipeline;
    });
    for (std::size_t k = 0; k < state.copies.size(); ++k) {
      const Copy& copy = state.copies[k];
      const auto consider = [&](Op op, int i) {
        const int inputs = inputs_end(op, copy.stage, i);
        if (inputs == not_yet) return;
        state.choice = std::min(state.choice, Choice{std::max(inputs, state.clock), op != preferred_, i, op, k});
      };
      if (copy.backwards < copy.forwards) consider(Op::backward, micro_batches_[copy.pipeline][copy.backwards]);
      if (has_forward(copy) && (next_forward(copy) == first || state.live + 1 + reserved <= memory_))
        consider(Op::forward, next_forward(copy));
    }
    if (state.choice.begin != not_yet) ready_.insert({state.choice, rank});
  }

  /// Runs the next instruction of a rank.
  void take(std::size_t rank) {
    RankState& state = ranks_[rank];
    const auto [begin, is_second, i, op, k] = state.choice;
    Copy& copy = state.copies[k];
    const bool forwards = op == Op::forward;
    ++(forwards ? copy.forwards : copy.backwards);
    state.live += forwards ? 1 : -1;
    state.clock = end(op, copy.stage, i) = begin + (forwards ? 1 : 2);
    makespan_ = std::max(makespan_, state.clock);
    schedule_.orders[rank].push_back(Instruction::compute(op, StageId(copy.stage), MicroBatch(i)));
    if (!forwards && copy.stage == 0) {  // another micro-batch is the oldest one now
      ++finished_[copy.pipeline];
      for (std::size_t other = 0; other < ranks_.size(); ++other) choose(other);
      return;
    }
    choose(rank);
    const StageId next(copy.stage + (forwards ? 1 : -1));
    if (next.value() < schedule_.stage_count()) choose(schedule_.rank_of(next, MicroBatch(i)).index());
  }

  Schedule schedule_;
  int memory_;
  Op preferred_;
  std::vector<std::vector<int>> micro_batches_;  // by pipeline
  std::vector<std::size_t> finished_;            // by pipeline
  std::vector<RankState> ranks_;
  std::array<std::vector<int>, 2> ends_;            // of forwards and of backwards, by stage and micro-batch
  std::set<std::pair<Choice, std::size_t>> ready_;  // the ranks that can run an instruction
  int makespan_ = 0;
};

}  // namespace

Schedule in_greedy_order(const Schedule& placed, int memory) {
  GreedyOrder backward_first(placed, memory, Op::backward);
  GreedyOrder forward_first(placed, memory, Op::forward);
  Schedule one = backward_first.run();
  Schedule other = forward_first.run();
  return forward_first.makespan() < backward_first.makespan() ? other : one;
}

}  // namespace penstock
