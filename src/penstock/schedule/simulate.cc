#include "penstock/schedule/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/splitmix.h"
#include "penstock/schedule/fault.h"
#include "penstock/schedule/replay.h"

namespace penstock {
namespace {

/// One entry per stage of what was given per stage or once for all.
std::vector<double> per_stage(const std::vector<double>& given, int stages) {
  return given.size() == 1 ? std::vector<double>(static_cast<std::size_t>(stages), given.front()) : given;
}

/// What one word takes, by stage.
class WordCosts {
 public:
  WordCosts(const Costs& costs, const Schedule& schedule)
      : WordCosts(costs, schedule.stage_count(), schedule.micro_batches) {}

  /// Where `before` was the rank's last compute word.
  double operator()(const Instruction& word, const std::optional<Instruction>& before) const {
    const std::size_t stage = word.stage().index();
    const auto with_overhead = [&](double cost) { return overhead_ + std::max(0.0, cost - spared(word, before)); };
    switch (word.op()) {
      case Op::forward: return with_overhead(forward_[stage]);
      case Op::backward: return with_overhead(backward_[stage]);
      case Op::input_grad: return with_overhead(input_grad_[stage]);
      case Op::weight_grad: return with_overhead(weight_grad(stage, word.micro_batch_count()));
      case Op::step: return update_[stage];
      default: return 0;
    }
  }

  double update(StageId stage) const { return update_[stage.index()]; }

 private:
  WordCosts(const Costs& costs, int stages, int micro_batches)
      : forward_(per_stage(costs.forward, stages)),
        input_grad_(per_stage(costs.input_grad, stages)),
        weight_grad_(per_stage(costs.weight_grad, stages)),
        fused_(costs.weight_grad_fused.empty() ? weight_grad_ : per_stage(costs.weight_grad_fused, stages)),
        update_(per_stage(costs.update, stages)),
        forward_spared_(per_stage(costs.forward_spared, stages)),
        input_grad_spared_(per_stage(costs.input_grad_spared, stages)),
        weight_grad_spared_(per_stage(costs.weight_grad_spared, stages)),
        overhead_(costs.overhead),
        micro_batches_(micro_batches) {
    if (!costs.backward.empty()) backward_ = per_stage(costs.backward, stages);
    for (std::size_t s = backward_.size(); s < input_grad_.size(); ++s)
      backward_.push_back(input_grad_[s] + weight_grad_[s]);
  }

  /// What the cache keeps from `before` to `word`.
  double spared(const Instruction& word, const std::optional<Instruction>& before) const {
    if (!before || before->stage() != word.stage()) return 0;
    const std::size_t stage = word.stage().index();
    const bool parameters = before->op() != Op::weight_grad;
    const bool gradients = before->op() == Op::weight_grad || before->op() == Op::backward;
    const double in_i = parameters ? input_grad_spared_[stage] : 0, in_w = gradients ? weight_grad_spared_[stage] : 0;
    switch (word.op()) {
      case Op::forward: return parameters ? forward_spared_[stage] : 0;
      case Op::backward: return in_i + in_w;
      case Op::input_grad: return in_i;
      case Op::weight_grad: return in_w;
      default: return 0;
    }
  }

  double weight_grad(std::size_t stage, int group) const {
    if (group == 1 || fused_[stage] == weight_grad_[stage]) return weight_grad_[stage] * group;
    const double missing = static_cast<double>(micro_batches_ - group) / (micro_batches_ - 1);
    return fused_[stage] * group + (weight_grad_[stage] - fused_[stage]) * missing;
  }

  std::vector<double> forward_, input_grad_, weight_grad_, fused_, backward_, update_, forward_spared_,
      input_grad_spared_, weight_grad_spared_;
  double overhead_;
  int micro_batches_;
};

/// One rank's own clock and books.
struct RankState {
  double clock = 0;
  std::optional<Instruction> last_word;  // that computes
  double first_begin = std::numeric_limits<double>::infinity();
  double last_end = 0;
  double busy = 0;
  int before_input_grad = 0;   // live micro-batches of chunks
  int before_weight_grad = 0;  // ... of which I has run
  int peak_contexts = 0;       // both together
  double peak = 0;             // the latter as the weight share says

  /// Returns when it is done.
  double work(double begin, double duration) {
    clock = begin + duration;
    busy += duration;
    first_begin = std::min(first_begin, begin);
    last_end = std::max(last_end, clock);
    return clock;
  }

  double span() const { return std::max(0.0, last_end - first_begin); }
};

/// What one micro-batch of one chunk holds once I has run.
struct Counting {
  double weight_share;
  bool forward_only;
};

void count_activations(RankState& state, const Instruction& word, const Counting& counting) {
  switch (word.op()) {
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
    case Op::weight_grad: state.before_weight_grad -= word.micro_batch_count(); return;
    default: return;
  }
}

/// Factors around 1 for the words of one run, the same wherever they are asked for: (1 + a z)^2 / (1 + a^2) with z
/// nearly normal, which has the mean 1 and a tail to the right. Arithmetic and roots alone: the same bits everywhere.
class Variation {
 public:
  Variation(double spread, std::uint64_t run) : spread_(spread), single_(square_of_a(spread * spread)), run_(run) {}

  double operator()(Rank rank, int position, const Instruction& word) const {
    if (spread_ == 0 || !is_compute(word.op())) return 1;
    const int group = word.micro_batch_count();
    const double square = group == 1 ? single_ : square_of_a(spread_ * spread_ / group);
    const std::uint64_t place = (std::uint64_t{rank.index()} << 32) + static_cast<std::uint32_t>(position);
    const double root = 1 + std::sqrt(square) * normal(place);
    return root * root / (1 + square);
  }

 private:
  /// a^2, for a factor of that variance: (4 a^2 + 1.7 a^4) / (1 + a^2)^2, as the fourth power of z is 2.7 on the mean.
  static double square_of_a(double variance) {
    const double quadratic = 1.7 - variance, linear = 4 - 2 * variance;
    return (std::sqrt(linear * linear + 4 * quadratic * variance) - linear) / (2 * quadratic);
  }

  /// Four sixteen-bit numbers of a hash summed up: near enough to a normal one.
  double normal(std::uint64_t place) const {
    const std::uint64_t bits = splitmix_mixed(place + (run_ + 1) * splitmix_increment);
    double sum = 0;
    for (int part = 0; part < 4; ++part) sum += static_cast<double>((bits >> (16 * part)) & 0xffff) / 65536 - 0.5;
    return sum * std::sqrt(3.0);  // the variance of the sum is 4/12
  }

  double spread_;
  double single_;  // of a word of one micro-batch
  std::uint64_t run_;
};

constexpr int varied_runs = 16;

double idle_share(double busy, double ranks, double cost) { return cost > 0 ? 1 - busy / (ranks * cost) : 0; }

struct StepTimes {
  double makespan = 0;
  double span = 0;
};

/// And what is idle in them.
void tell_times(const StepTimes& times, Simulation& simulation) {
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
  tell_times({std::max(0.0, last_end - first_begin), span}, result);
  return result;
}

}  // namespace

Simulation simulate(const Schedule& schedule, const Costs& costs, const SimulateOptions& options) {
  if (auto fault = find_misplaced(schedule)) throw PlanError("this schedule cannot run: " + fault->reason);
  require_costs_fit(costs, schedule.stage_count());
  require<ConfigError>(options.spread >= 0 && options.spread <= most_spread, "a spread of ", options.spread, ": 0 to ",
                       most_spread, " is possible");
  const WordCosts cost_of(costs, schedule);
  const Dependencies dependencies(schedule, options.links ? *options.links : links_of(schedule));
  if (auto fault = find_incomplete(schedule, dependencies))
    throw PlanError("this schedule cannot run: " + fault->reason);

  const Counting counting{costs.weight_share, schedule.is_forward_only()};
  std::vector<RankState> ranks;
  std::vector<std::vector<Slot>> slots(options.keep_slots ? schedule.orders.size() : 0);
  Variation variation(0, 0);
  const bool adds_updates = !schedule.is_lowered() && !schedule.is_forward_only();
  const auto run = [&](Rank rank, int position, const Instruction& word, double ready) {
    RankState& state = ranks[rank.index()];
    const double begin = std::max(state.clock, ready);
    if (is_send(word.op())) return begin;  // leaves when the rank comes to it, and occupies nobody
    const double duration = cost_of(word, state.last_word) * variation(rank, position, word);
    if (is_compute(word.op())) state.last_word = word;
    const double end = state.work(begin, duration);
    if (adds_updates && schedule.completes_gradients(word)) state.work(end, cost_of.update(word.stage()));
    count_activations(state, word, counting);
    if (!slots.empty() && (is_compute(word.op()) || word.op() == Op::step))
      slots[rank.index()].push_back({word, begin, end});
    return end;
  };
  const auto run_all = [&] {
    ranks.assign(schedule.orders.size(), {});
    const Reach progress = replay(schedule, dependencies, costs.message, run);
    require<PlanError>(progress.finished, "this schedule deadlocks: judge() tells where");
    return summary(schedule, ranks);
  };

  Simulation result = run_all();
  result.slots = std::exchange(slots, {});
  if (options.spread == 0) return result;
  double makespan = 0, span = 0;
  for (int i = 0; i < varied_runs; ++i) {
    variation = Variation(options.spread, static_cast<std::uint64_t>(i));
    const Simulation varied = run_all();
    makespan += varied.makespan / varied_runs;
    span += varied.span / varied_runs;
  }
  tell_times({makespan, span}, result);
  return result;
}

}  // namespace penstock
