#include "penstock/schedule/generators/interleave_groups.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

namespace penstock {
namespace {

class Race {
 public:
  Race(const ScheduleShape& shape, const Groups& groups, const RaceOptions& options)
      : shape_(shape),
        turns_(turns_of(shape, groups)),
        options_(options),
        runners_(static_cast<std::size_t>(shape.ranks)),
        done_(2, std::vector<int>(static_cast<std::size_t>(shape.ranks * shape.chunks) *
                                      static_cast<std::size_t>(shape.micro_batches),
                                  not_yet)) {}

  std::optional<Schedule> run() {
    Schedule schedule = placed_in_turns(options_.name, shape_);
    for (Order& order : schedule.orders) order.reserve(2 * turns_.size());
    std::set<std::pair<int, int>> ready;  // when, and the rank
    const auto look_at = [&](int rank) {
      Runner& runner = runners_[static_cast<std::size_t>(rank)];
      if (runner.starts != not_yet) ready.erase({runner.starts, rank});
      runner.starts = next_start(rank);
      if (runner.starts != not_yet) ready.insert({runner.starts, rank});
    };
    for (int rank = 0; rank < shape_.ranks; ++rank) look_at(rank);
    std::size_t instructions = 0;
    while (!ready.empty()) {
      const int rank = ready.begin()->second;
      schedule.orders[static_cast<std::size_t>(rank)].push_back(take(rank));
      ++instructions;
      look_at(rank);
      // Who may have waited for it: the neighbours on both sides of the circle.
      look_at((rank + 1) % shape_.ranks);
      look_at((rank + shape_.ranks - 1) % shape_.ranks);
    }
    if (instructions < 2 * turns_.size() * runners_.size()) return std::nullopt;
    return schedule;
  }

 private:
  static constexpr int not_yet = std::numeric_limits<int>::max();

  struct Runner {
    std::size_t forwards = 0;
    std::size_t backwards = 0;
    int clock = 0;
    int starts = not_yet;      // its next instruction
    bool goes_forward = true;  // that instruction is a forward
    bool went_forward = false;
  };

  int& done(const Instruction& instruction) {
    const std::size_t row = instruction.stage().index() * static_cast<std::size_t>(shape_.micro_batches);
    return done_[instruction.op() == Op::forward ? 0 : 1][row + instruction.micro_batch().index()];
  }
  /// When `stage` has finished that instruction; at once where there is no such stage.
  int done_by(Op op, int stage, MicroBatch i) {
    if (stage < 0 || stage >= shape_.ranks * shape_.chunks) return 0;
    return done(Instruction::compute(op, StageId(stage), i));
  }

  int next_start(int rank) {
    Runner& runner = runners_[static_cast<std::size_t>(rank)];
    int forward_start = not_yet;
    int backward_start = not_yet;
    const auto live = static_cast<int>(runner.forwards - runner.backwards);
    if (runner.forwards < turns_.size() && live < options_.most) {
      const Instruction instruction = forward_of(shape_, Rank(rank), turns_[runner.forwards]);
      forward_start = done_by(Op::forward, instruction.stage().value() - 1, instruction.micro_batch());
    }
    if (runner.backwards < turns_.size()) {
      const Instruction instruction = backward_of(shape_, Rank(rank), turns_[runner.backwards]);
      const int own = done_by(Op::forward, instruction.stage().value(), instruction.micro_batch());
      backward_start = std::max(own, done_by(Op::backward, instruction.stage().value() + 1, instruction.micro_batch()));
    }
    const auto from_now = [&](int start) { return start == not_yet ? not_yet : std::max(start, runner.clock); };
    forward_start = from_now(forward_start);
    backward_start = from_now(backward_start);
    runner.goes_forward = forward_start == backward_start ? !runner.went_forward : forward_start < backward_start;
    return std::min(forward_start, backward_start);
  }

  Instruction take(int rank) {
    Runner& runner = runners_[static_cast<std::size_t>(rank)];
    const Instruction instruction = runner.goes_forward ? forward_of(shape_, Rank(rank), turns_[runner.forwards++])
                                                        : backward_of(shape_, Rank(rank), turns_[runner.backwards++]);
    runner.clock = runner.starts + (runner.goes_forward ? 1 : 2);
    runner.went_forward = runner.goes_forward;
    done(instruction) = runner.clock;
    return instruction;
  }

  ScheduleShape shape_;
  std::vector<Turn> turns_;
  RaceOptions options_;
  std::vector<Runner> runners_;
  std::vector<std::vector<int>> done_;  // forwards and backwards: when, by stage and micro-batch
};

}  // namespace

std::vector<Turn> turns_of(const ScheduleShape& shape, const Groups& groups) {
  std::vector<Turn> turns;
  turns.reserve(static_cast<std::size_t>(shape.chunks) * static_cast<std::size_t>(shape.micro_batches));
  int begin = 0;
  for (const int size : groups) {
    for (int chunk = 0; chunk < shape.chunks; ++chunk)
      for (int i = begin; i < begin + size; ++i) turns.push_back({chunk, MicroBatch(i)});
    begin += size;
  }
  return turns;
}

Instruction forward_of(const ScheduleShape& shape, Rank rank, const Turn& turn) {
  return forward(StageId(turn.chunk * shape.ranks + rank.value()), turn.micro_batch);
}

Instruction backward_of(const ScheduleShape& shape, Rank rank, const Turn& turn) {
  return backward(StageId((shape.chunks - 1 - turn.chunk) * shape.ranks + rank.value()), turn.micro_batch);
}

std::optional<Schedule> race(const ScheduleShape& shape, const Groups& groups, const RaceOptions& options) {
  return Race(shape, groups, options).run();
}

}  // namespace penstock
