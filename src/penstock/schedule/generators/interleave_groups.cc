#include "penstock/schedule/generators/interleave_groups.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace penstock {
namespace {

class GreedyInterleaving {
 public:
  GreedyInterleaving(const ScheduleShape& shape, const Groups& groups, const GreedyOptions& options)
      : shape_(shape),
        passes_(passes_of(shape, groups)),
        options_(options),
        states_(static_cast<std::size_t>(shape.ranks)),
        done_(2, std::vector<int>(static_cast<std::size_t>(shape.ranks * shape.chunks) *
                                      static_cast<std::size_t>(shape.micro_batches),
                                  not_yet)) {}

  std::optional<Schedule> run() {
    Schedule schedule = placed_round_robin(options_.name, shape_);
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
    if (state.forwards < passes_.size() && live < options_.most) {
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
  GreedyOptions options_;
  std::vector<RankState> states_;
  std::vector<std::vector<int>> done_;  // the ends of forwards and of backwards, by stage and micro-batch
};

}  // namespace

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

std::optional<Schedule> interleave_greedily(const ScheduleShape& shape, const Groups& groups,
                                            const GreedyOptions& options) {
  return GreedyInterleaving(shape, groups, options).run();
}

}  // namespace penstock
