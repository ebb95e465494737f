#include "penstock/schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/splitmix.h"
#include "penstock/schedule/instruction_times.h"
#include "penstock/schedule/replay.h"
#include "penstock/schedule/violation.h"

namespace penstock {
namespace {

/// The clock and the counters of one rank.
struct RankState {
  double clock = 0;
  std::optional<Instruction> last_instruction;  // the last compute instruction
  double first_begin = std::numeric_limits<double>::infinity();
  double last_end = 0;
  double busy = 0;
  int before_input_grad = 0;   // live micro-batches, per chunk, whose B or I has not run
  int before_weight_grad = 0;  // live micro-batches, per chunk, whose I has run
  int peak_contexts = 0;       // the peak of the sum of both
  double peak = 0;             // the same, with the second one weighted by the weight share

  /// Returns the end of the work.
  double work(double begin, double duration) {
    clock = begin + duration;
    busy += duration;
    first_begin = std::min(first_begin, begin);
    last_end = std::max(last_end, clock);
    return clock;
  }

  double span() const { return std::max(0.0, last_end - first_begin); }
};

/// How activations are counted.
struct Counting {
  double weight_share;
  bool forward_only;
};

void count_activations(RankState& state, const Instruction& instruction, const Counting& counting) {
  switch (instruction.op()) {
    case Op::forward:
      ++state.before_input_grad;
      state.peak_contexts = std::max(state.peak_contexts, state.before_input_grad + state.before_weight_grad);
      state.peak = std::max(state.peak, state.before_input_grad + counting.weight_share * state.before_weight_grad);
      if (counting.forward_only) --state.before_input_grad;
      return;
    case Op::backward: --state.before_input_grad; return;
    case Op::input_grad:
      --state.before_input_grad;
      ++state.before_weight_grad;
      return;
    case Op::weight_grad: state.before_weight_grad -= instruction.micro_batch_count(); return;
    default: return;
  }
}

/// Random factors for the times of instructions, a function of the run and the instruction's position: (1 + a z)^2 /
/// (1 + a^2), where z is nearly normal. Their mean is 1, and their distribution has a tail to the right. They use only
/// arithmetic and square roots, so that they are bitwise the same on every machine.
class Variation {
 public:
  Variation(double time_variation, std::uint64_t run)
      : time_variation_(time_variation), single_(square_of_a(time_variation * time_variation)), run_(run) {}

  double operator()(Rank rank, int position, const Instruction& instruction) const {
    if (time_variation_ == 0 || !is_compute(instruction.op())) return 1;
    const int group = instruction.micro_batch_count();
    const double square = group == 1 ? single_ : square_of_a(time_variation_ * time_variation_ / group);
    const std::uint64_t place = (std::uint64_t{rank.index()} << 32) + static_cast<std::uint32_t>(position);
    const double root = 1 + std::sqrt(square) * normal(place);
    return root * root / (1 + square);
  }

 private:
  /// Solves variance = (4 a^2 + 1.7 a^4) / (1 + a^2)^2 for a^2. The mean of the fourth power of z is 2.7.
  static double square_of_a(double variance) {
    const double quadratic = 1.7 - variance, linear = 4 - 2 * variance;
    return (std::sqrt(linear * linear + 4 * quadratic * variance) - linear) / (2 * quadratic);
  }

  /// Approximates a standard normal number by the sum of four 16-bit numbers of a hash.
  double normal(std::uint64_t place) const {
    const std::uint64_t bits = splitmix_mixed(place + (run_ + 1) * splitmix_increment);
    double sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<double>((bits >> (16 * part)) & 0xffff) / 65536 - 0.5;
    return sum * std::sqrt(3.0);  // the variance of the sum is 4/12
  }

  double time_variation_;
  double single_;  // square_of_a() for an instruction of one micro-batch
  std::uint64_t run_;
};

constexpr int varied_runs = 16;

double idle_share(double busy, double ranks, double cost) { return cost > 0 ? 1 - busy / (ranks * cost) : 0; }

struct StepTimes {
  double makespan = 0;
  double span = 0;
};

/// Sets the times and the idle shares that follow from them.
void report_times(const StepTimes& times, Simulation& simulation) {
  const double busy = std::accumulate(simulation.busy.begin(), simulation.busy.end(), 0.0);
  const auto ranks = static_cast<double>(simulation.busy.size());
  simulation.makespan = times.makespan;
  simulation.span = times.span;
  simulation.bubble_makespan = idle_share(busy, ranks, times.makespan);
  simulation.bubble_span = idle_share(busy, ranks, times.span);
}

Simulation summary(const Schedule& schedule, const std::vector<RankState>& ranks) {
  std::vector<int> chunks(ranks.size(), 0);
  for (const Rank rank : schedule.rank_of_stage) ++chunks[rank.index()];

  Simulation result;
  double first_begin = std::numeric_limits<double>::infinity();
  double last_end = 0;
  double span = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankState& state = ranks[rank];
    first_begin = std::min(first_begin, state.first_begin);
    last_end = std::max(last_end, state.last_end);
    span = std::max(span, state.span());
    result.busy.push_back(state.busy);
    result.peak_activations.push_back(state.peak / std::max(1, chunks[rank]));
    result.peak_contexts.push_back(state.peak_contexts);
  }
  report_times({std::max(0.0, last_end - first_begin), span}, result);
  return result;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const StageCosts& costs, const SimulateOptions& options) {
  if (auto violation = find_misplaced(schedule)) throw ScheduleError("this schedule cannot run: " + violation->reason);
  const InstructionTimes time_of(costs, schedule);
  require<ConfigError>(options.time_variation >= 0 && options.time_variation <= largest_time_variation,
                       "a time_variation of ", options.time_variation, ": 0 to ", largest_time_variation,
                       " is possible");
  const Dependencies dependencies(schedule, options.links ? *options.links : links_of(schedule));
  if (auto violation = find_incomplete(schedule, dependencies))
    throw ScheduleError("this schedule cannot run: " + violation->reason);

  const Counting counting{costs.weight_share, schedule.is_forward_only()};
  std::vector<RankState> ranks;
  std::vector<std::vector<Slot>> slots(options.keep_slots ? schedule.orders.size() : 0);
  Variation variation(0, 0);
  const bool adds_updates = !schedule.is_lowered() && !schedule.is_forward_only();
  const auto run = [&](Rank rank, int position, const Instruction& instruction, double ready) {
    RankState& state = ranks[rank.index()];
    const double begin = std::max(state.clock, ready);
    if (is_send(instruction.op())) return begin;  // a message occupies no rank
    const double duration = time_of(instruction, state.last_instruction) * variation(rank, position, instruction);
    if (is_compute(instruction.op())) state.last_instruction = instruction;
    const double end = state.work(begin, duration);
    if (adds_updates && schedule.completes_gradients(instruction))
      state.work(end, time_of.update(instruction.stage().index()));
    count_activations(state, instruction, counting);
    if (!slots.empty() && (is_compute(instruction.op()) || instruction.op() == Op::step))
      slots[rank.index()].push_back({instruction, begin, end});
    return end;
  };
  const auto run_all = [&] {
    ranks.assign(schedule.orders.size(), {});
    const Reach progress = replay(schedule, dependencies, time_of.message(), run);
    require<ScheduleError>(progress.finished, "this schedule deadlocks: validate() reports where");
    return summary(schedule, ranks);
  };

  Simulation result = run_all();
  result.slots = std::exchange(slots, {});
  if (options.time_variation == 0) return result;
  double makespan = 0, span = 0;
  for (int i = 0; i < varied_runs; ++i) {
    variation = Variation(options.time_variation, static_cast<std::uint64_t>(i));
    const Simulation varied = run_all();
    makespan += varied.makespan / varied_runs;
    span += varied.span / varied_runs;
  }
  report_times({makespan, span}, result);
  return result;
}

}  // namespace penstock
