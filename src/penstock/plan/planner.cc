#include "penstock/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "penstock/base/error.h"
#include "penstock/plan/stage_partitioner.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

constexpr double memory_limits[] = {1, 1.5, 2};  // for generators that adapt, in units of 1F1B's activations

/// A generator with its settings.
struct Attempt {
  const Generator* generator = nullptr;
  ScheduleShape shape;
  double memory_limit = 1;

  /// The generator's schedule, without fused W's.
  Schedule instructions(const StageCosts& costs) const {
    return generate(generator->name, shape, {.costs = costs, .memory_limit = memory_limit});
  }
};

std::optional<double> limit_of(const Attempt& attempt) {
  return attempt.generator->fits_limit ? std::optional(attempt.memory_limit) : std::nullopt;
}

/// A candidate, and the input from which its schedule can be generated again: the schedules of all candidates together
/// would need too much memory.
struct Outcome {
  Candidate candidate;
  Attempt attempt;
  Stages stages;
  StageCosts costs;  // of the stages
};

/// Sorts by time, then by memory; candidates that do not fit come last, by memory. Sums of the same costs in another
/// order differ in their last digits, so steps whose times round to the same multiple of the shortest count as equal.
void put_in_order(std::vector<Outcome>& outcomes) {
  constexpr double digits = 1e9;
  double shortest = std::numeric_limits<double>::infinity();
  for (const Outcome& outcome : outcomes)
    if (outcome.candidate.fits) shortest = std::min(shortest, outcome.candidate.prediction.makespan);
  const auto place_of = [&](const Outcome& outcome) {
    const Candidate& candidate = outcome.candidate;
    const double time = candidate.fits ? candidate.prediction.makespan : 0;
    return std::tuple(!candidate.fits, shortest > 0 ? std::round(time / shortest * digits) : time,
                      candidate.prediction.most_bytes());
  };
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [&](const Outcome& a, const Outcome& b) { return place_of(a) < place_of(b); });
}

/// The number of live micro-batches per rank that fit into the cap if each is as large as that of the rank's largest
/// stage.
std::vector<int> fitting_contexts(const LayerSums& sums, const Schedule& schedule, const Stages& stages, double cap) {
  const std::size_t ranks = schedule.orders.size();
  std::vector<double> largest(ranks, 0);
  std::vector<double> available(ranks, cap);
  std::vector<int> all(ranks, 0);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::size_t rank = schedule.rank_of_stage[s].index();
    largest[rank] = std::max(largest[rank], sums.activation_bytes(stages[s]));
    available[rank] -= sums.parameter_bytes(stages[s]);
    all[rank] += schedule.micro_batches;
  }
  std::vector<int> contexts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double fitting = largest[rank] > 0 ? std::floor(std::max(0.0, available[rank]) / largest[rank]) : all[rank];
    contexts.push_back(static_cast<int>(std::min<double>(fitting, all[rank])));
  }
  return contexts;
}

SimulateOptions varying(const LayerCosts& costs) {
  return {.links = {}, .keep_slots = false, .time_variation = costs.time_variation};
}

/// Sets all members of `prediction` but memory_bytes.
void report_time(const Simulation& simulation, Prediction& prediction) {
  prediction.makespan = simulation.makespan;
  prediction.bubble_makespan = std::max(0.0, simulation.bubble_makespan);  // below 0 by rounding only
  prediction.bubble_span = std::max(0.0, simulation.bubble_span);
  prediction.peak_activations = simulation.peak_activations;
}

/// The candidates with one m.
class Candidates {
 public:
  Candidates(const LayerCosts& costs, int micro_batches)
      : costs_(costs), sums_(costs, micro_batches), partitioner_(costs, sums_) {}

  /// Adds the candidates of `attempt` in each mode to `outcomes`; if the fused one does not fit, also the grouped one.
  /// `base` is the schedule of `attempt` with unit costs, which shows the placement and the live micro-batches.
  void run(const Attempt& attempt, const Schedule& base, const std::vector<WeightMode>& modes,
           std::vector<Outcome>& outcomes) {
    std::optional<Outcome> in_stream;
    const auto best_in_stream = [&] {
      if (!in_stream) in_stream = best_of(attempt, base, WeightMode::stream);
      return *in_stream;
    };
    for (const WeightMode mode : modes) {
      outcomes.push_back(mode == WeightMode::stream ? best_in_stream() : best_of(attempt, base, mode));
      if (mode != WeightMode::fused || outcomes.back().candidate.fits) continue;
      if (auto grouped = grouped_within_cap(best_in_stream())) outcomes.push_back(*std::move(grouped));
    }
  }

  Schedule schedule_of(const Outcome& outcome) const {
    const WeightMode mode = outcome.candidate.weight_gradients;
    const Schedule instructions = outcome.attempt.instructions(outcome.costs);
    if (mode == WeightMode::grouped)
      return fuse_w(instructions,
                    {.group = 0, .activation_limit = fitting_contexts(sums_, instructions, outcome.stages, cap())});
    return with_weights(instructions, mode);
  }

 private:
  static Schedule with_weights(const Schedule& instructions, WeightMode mode) {
    return mode == WeightMode::fused ? fuse_w(instructions) : instructions;
  }

  double cap() const { return costs_.memory_cap_bytes.value_or(std::numeric_limits<double>::infinity()); }

  /// Sets Candidate::prediction and Candidate::fits.
  void predict(Outcome& outcome) const {
    Candidate& candidate = outcome.candidate;
    const Schedule schedule = schedule_of(outcome);
    candidate.prediction.memory_bytes = memory_bytes(sums_, schedule, outcome.stages);
    candidate.fits = candidate.prediction.most_bytes() <= cap();
    if (!candidate.fits) return;
    report_time(simulate(schedule, outcome.costs, varying(costs_)), candidate.prediction);
  }

  /// The candidate with the best partition. The partitions are made for the memory of `base`; the schedule of a
  /// generator that adapts to costs may need more or less.
  Outcome best_of(const Attempt& attempt, const Schedule& base, WeightMode mode) {
    const Schedule instructions = with_weights(base, mode);
    std::vector<Outcome> outcomes;
    const auto consider = [&](const StagePartition& partition) {
      outcomes.push_back({{.schedule = std::string(attempt.generator->name),
                           .chunks = attempt.shape.chunks,
                           .micro_batches = attempt.shape.micro_batches,
                           .memory_limit = limit_of(attempt),
                           .weight_gradients = mode,
                           .partition = partition.kind,
                           .is_exact = partition.is_exact,
                           .fits = false,
                           .prediction = {}},
                          attempt,
                          partition.stages,
                          stage_costs(sums_, instructions.rank_of_stage, partition.stages)});
      predict(outcomes.back());
    };
    for (const StagePartition& partition : partitioner_.partitions(instructions)) consider(partition);
    if (std::none_of(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) { return outcome.candidate.fits; }))
      consider(partitioner_.smallest(instructions));
    put_in_order(outcomes);
    return std::move(outcomes.front());
  }

  /// The candidate with grouped weight gradients and the partition of `outcome`, the best one in stream mode; none if
  /// the cap is too small even for single W's.
  std::optional<Outcome> grouped_within_cap(Outcome outcome) const {
    if (!outcome.candidate.fits) return std::nullopt;
    const Schedule instructions = schedule_of(outcome);
    const std::vector<int> limit = fitting_contexts(sums_, instructions, outcome.stages, cap());
    const std::vector<int> least = smallest_fuse_limit(instructions);
    for (std::size_t rank = 0; rank < limit.size(); ++rank)
      if (limit[rank] < least[rank]) return std::nullopt;
    outcome.candidate.weight_gradients = WeightMode::grouped;
    predict(outcome);
    return outcome;
  }

  const LayerCosts& costs_;
  LayerSums sums_;
  StagePartitioner partitioner_;
};

std::vector<const Generator*> generators_of(const PlanConstraints& constraints) {
  std::vector<const Generator*> chosen;
  const auto trains = [](const Generator& generator) {
    return !generate(generator.name, {.ranks = 1, .micro_batches = 1, .chunks = generator.default_chunks})
                .is_forward_only();
  };
  for (const std::string& name : constraints.schedules) {
    const Generator& generator = find_generator(name);
    require<ConfigError>(trains(generator), "schedule '", name, "' only goes forward: a plan is for training");
    chosen.push_back(&generator);
  }
  if (constraints.schedules.empty())
    for (const Generator& generator : generators())
      if (trains(generator)) chosen.push_back(&generator);
  return chosen;
}

/// The upper bound of chunks per rank: a stage has at least one layer.
int most_chunks_for(const Generator& generator, const LayerCosts& costs) {
  const auto layers = static_cast<std::int64_t>(costs.layers.size());
  return static_cast<int>(std::min<std::int64_t>({most_chunks, generator.max_chunks, layers / costs.ranks}));
}

/// An attempt with its schedule for unit costs.
struct Base {
  Attempt attempt;
  Schedule instructions;
};

/// The attempts with a generator: one for each memory limit that gives a different schedule.
std::vector<Base> bases_of(const Generator& generator, const ScheduleShape& shape) {
  std::vector<Base> bases;
  for (const double limit : memory_limits) {
    const Attempt attempt{&generator, shape, limit};
    Schedule instructions = attempt.instructions(StageCosts::unit());
    if (std::none_of(bases.begin(), bases.end(), [&](const Base& other) { return other.instructions == instructions; }))
      bases.push_back({attempt, std::move(instructions)});
    if (!generator.fits_limit) break;
  }
  return bases;
}

Plan plan_of(const LayerCosts& costs, const Outcome& outcome) {
  Plan plan{.costs = {},
            .time_unit = costs.time_unit,
            .weight_gradients = outcome.candidate.weight_gradients,
            .kernels = costs.kernels,
            .stages = {},
            .prediction = outcome.candidate.prediction,
            .schedule = Candidates(costs, outcome.candidate.micro_batches).schedule_of(outcome)};
  for (const LayerRange& stage : outcome.stages) {
    plan.stages.emplace_back();
    for (int layer = stage.begin; layer < stage.end; ++layer)
      plan.stages.back().push_back(costs.layers[static_cast<std::size_t>(layer)].name);
  }
  return plan;
}

}  // namespace

Planned make_plan(const LayerCosts& costs, const PlanConstraints& constraints) {
  const std::string costs_fingerprint = fingerprint(costs);  // throws for costs out of range
  const auto layers = static_cast<std::int64_t>(costs.layers.size());
  std::vector<WeightMode> modes = {WeightMode::stream, WeightMode::fused};
  if (constraints.weight_gradients) modes = {*constraints.weight_gradients};
  require<ConfigError>(constraints.weight_gradients != WeightMode::grouped,
                       "grouped weight gradients replace fused ones where memory is short: ask for fused");

  Planned planned;
  std::vector<Outcome> outcomes;
  const std::vector<const Generator*> chosen = generators_of(constraints);
  for (const Generator* generator : chosen) {
    const int most = most_chunks_for(*generator, costs);
    if (most < std::min(generator->max_chunks, most_chunks))
      planned.left_out.push_back(say(generator->name, " with ", std::max(most + 1, generator->min_chunks),
                                     " or more chunks per rank: ", layers, " layers are too few"));
  }
  for (const int m : candidate_micro_batches(costs)) {
    Candidates candidates(costs, m);
    for (const Generator* generator : chosen)
      for (int v = generator->min_chunks; v <= most_chunks_for(*generator, costs); ++v) {
        const ScheduleShape shape{.ranks = costs.ranks, .micro_batches = m, .chunks = v};
        for (const auto& [attempt, instructions] : bases_of(*generator, shape))
          candidates.run(attempt, instructions, modes, outcomes);
      }
  }
  require<ScheduleError>(!outcomes.empty(), "nothing can be tried: ", layers,
                         " layers do not make a stage for each of ", costs.ranks,
                         " ranks and their chunks; use fewer ranks");
  put_in_order(outcomes);
  const Outcome& best = outcomes.front();
  require<ScheduleError>(
      best.candidate.fits, "no schedule fits into ", std::llround(costs.memory_cap_bytes.value_or(0)),
      " bytes per rank: the smallest cap that would do is ", std::llround(best.candidate.prediction.most_bytes()),
      " bytes, with '", best.candidate.schedule, "', ", best.candidate.chunks, " chunk(s) per rank and ",
      best.candidate.micro_batches, " micro-batches");
  planned.plan = plan_of(costs, best);
  planned.plan.costs = costs_fingerprint;
  planned.slowdown_under_load = costs.slowdown_under_load;
  for (Outcome& outcome : outcomes) planned.candidates.push_back(std::move(outcome.candidate));
  return planned;
}

Prediction predict(const Plan& plan, const LayerCosts& costs) {
  Stages stages;
  int next = 0;
  for (const std::vector<std::string>& stage : plan.stages) {
    const int begin = next;
    for (const std::string& layer : stage) {
      const auto index = static_cast<std::size_t>(next);
      const std::string known = index < costs.layers.size() ? costs.layers[index].name : "";
      require<ConfigError>(layer == known, "the plan has '", layer, "' as layer ", next, ", and the costs have ",
                           known.empty() ? "no more layers" : "'" + known + "'", ": they are for different networks");
      ++next;
    }
    stages.push_back({begin, next});
  }
  require<ConfigError>(next == std::ssize(costs.layers), "the plan has ", next, " layers, and the costs have ",
                       costs.layers.size(), ": they are for different networks");
  const LayerSums sums(costs, plan.schedule.micro_batches);
  Prediction prediction;
  report_time(simulate(plan.schedule, stage_costs(sums, plan.schedule.rank_of_stage, stages), varying(costs)),
              prediction);
  prediction.memory_bytes = memory_bytes(sums, plan.schedule, stages);
  return prediction;
}

}  // namespace penstock
