#include "penstock/schedule/simulate.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/schedule/lower.h"
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

double idle_share(double busy, double ranks, double cost) { return cost > 0 ? 1 - busy / (ranks * cost) : 0; }

/// `per_step` is added to the step.
Simulation summary(const Schedule& schedule, const std::vector<RankState>& ranks, double per_step) {
  const std::vector<int> chunks = schedule.chunks();
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
  result.makespan = std::max(0.0, last_end - first_begin) + per_step;
  result.span = span + per_step;
  const double busy = std::accumulate(result.busy.begin(), result.busy.end(), 0.0);
  result.bubble_makespan = idle_share(busy, static_cast<double>(ranks.size()), result.makespan);
  result.bubble_span = idle_share(busy, static_cast<double>(ranks.size()), result.span);
  return result;
}

}  // namespace

std::vector<double> peak_activations(const Schedule& schedule, double weight_share) {
  const Counting counting{weight_share, schedule.is_forward_only()};
  const std::vector<int> chunks = schedule.chunks();
  std::vector<double> peaks;
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank) {
    RankState state;
    for (const Instruction& instruction : schedule.orders[rank]) count_activations(state, instruction, counting);
    peaks.push_back(state.peak / std::max(1, chunks[rank]));
  }
  return peaks;
}

Simulation simulate(const Schedule& schedule, const StageCosts& costs, const SimulateOptions& options) {
  if (auto violation = find_misplaced(schedule)) throw ScheduleError("this schedule cannot run: " + violation->reason);
  const InstructionTimes time_of(costs, schedule);
  const Links links = options.links ? *options.links : links_of(schedule);
  // Steps wait for the gradients of the other copies of their stage.
  if ((time_of.needs_lowering() || schedule.pipeline_count() > 1) && !schedule.is_lowered()) {
    const LowerOptions with{.reduce = time_of.reduces()};
    Simulation result = simulate(lower(schedule, links, with), costs, {links, options.keep_slots});
    for (std::vector<Slot>& of_rank : result.slots)
      std::erase_if(of_rank, [](const Slot& slot) { return slot.instruction.op() == Op::step; });
    return result;
  }
  const Dependencies dependencies(schedule, links);
  if (auto violation = find_incomplete(schedule, dependencies))
    throw ScheduleError("this schedule cannot run: " + violation->reason);

  const Counting counting{costs.weight_share, schedule.is_forward_only()};
  std::vector<RankState> ranks(schedule.orders.size());
  std::vector<std::vector<Slot>> slots(options.keep_slots ? schedule.orders.size() : 0);
  const bool adds_updates = !schedule.is_lowered() && !schedule.is_forward_only();
  std::vector<double> link_is_free(ranks.size() * ranks.size(), 0);  // by sender, then receiver
  std::vector<double> replicas_are_free(ranks.size(), 0);            // per rank, its link to the other replicas
  std::vector<double> is_reduced(time_of.stages(), 0);               // per stage
  const auto send = [&](Rank rank, const Instruction& instruction, double begin) {
    RankState& state = ranks[rank.index()];
    if (const double sending = time_of.sending(instruction.stage(), instruction.peer()); sending > 0)
      begin = state.work(begin, sending);
    const Rank receiver = schedule.rank_of(instruction.peer(), instruction.micro_batch());
    double& free = link_is_free[rank.index() * ranks.size() + receiver.index()];
    const double departure = std::max(begin, free);
    free = departure + time_of.message(instruction.stage(), instruction.peer()).gap;
    return departure;
  };
  const auto reduce = [&](Rank rank, std::size_t stage, double end) {
    double& free = replicas_are_free[rank.index()];
    free = std::max(end, free) + time_of.reduce(stage);
    is_reduced[stage] = std::max(is_reduced[stage], free);
  };
  const auto run = [&](Rank rank, int, const Instruction& instruction, double ready) {
    RankState& state = ranks[rank.index()];
    double begin = std::max(state.clock, ready);
    if (is_send(instruction.op())) return send(rank, instruction, begin);
    const std::size_t stage = instruction.stage().index();
    if (instruction.op() == Op::step) begin = std::max(begin, is_reduced[stage]);
    const double duration = time_of(instruction, state.last_instruction);
    if (is_compute(instruction.op())) state.last_instruction = instruction;
    const double end = state.work(begin, duration);
    if (schedule.completes_gradients(instruction)) {
      if (time_of.reduce_overlaps()) reduce(rank, stage, end);
      if (adds_updates) state.work(end, time_of.update(stage));
    }
    count_activations(state, instruction, counting);
    if (!slots.empty() && (is_compute(instruction.op()) || instruction.op() == Op::step))
      slots[rank.index()].push_back({instruction, begin, end});
    return end;
  };
  const auto message_time = [&](StageId from, StageId to) { return time_of.message(from, to).time; };
  const Reach progress = replay(schedule, dependencies, message_time, run);
  require<ScheduleError>(progress.finished, "this schedule deadlocks: validate() reports where");
  Simulation result = summary(schedule, ranks, time_of.per_step());
  result.slots = std::move(slots);
  return result;
}

}  // namespace penstock
