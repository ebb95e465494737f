#include "penstock/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "penstock/base/error.h"
#include "penstock/plan/stage_cutter.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

constexpr int most_chunks = 4;
constexpr double memory_limits[] = {1, 1.5, 2};  // for generators that adapt, in units of 1F1B's activations

/// What is tried: a generator with all its settings.
struct Candidate {
  const Generator& generator;
  ScheduleShape shape;
  double memory_limit = 1;
  WeightMode weight_gradients = WeightMode::stream;

  /// Its words against `costs`, W's not yet fused.
  Schedule words(const Costs& costs) const {
    return generate(generator.name, shape, {.costs = costs, .memory_limit = memory_limit});
  }
};

/// A trial and what it would execute.
struct Outcome {
  Trial trial;
  Stages stages;
  Schedule schedule;
};

/// Shorter, then smaller; what does not fit comes behind, by what it needs.
bool goes_before(const Outcome& a, const Outcome& b) {
  const auto order = [](const Trial& trial) {
    const std::vector<double>& bytes = trial.prediction.memory_bytes;
    const double most = *std::max_element(bytes.begin(), bytes.end());
    return std::tuple(!trial.fits, trial.fits ? trial.prediction.makespan : 0, most);
  };
  return order(a.trial) < order(b.trial);
}

/// The most live contexts per rank that the cap has room for, if all of them were the rank's largest.
std::vector<int> room_for_contexts(const LayerSums& sums, const Schedule& schedule, const Stages& stages, double cap) {
  const std::size_t ranks = schedule.orders.size();
  std::vector<double> largest(ranks, 0);
  std::vector<double> room(ranks, cap);
  std::vector<int> all(ranks, 0);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const std::size_t rank = schedule.rank_of_stage[s].index();
    largest[rank] = std::max(largest[rank], sums.activation_bytes(stages[s]));
    room[rank] -= sums.parameter_bytes(stages[s]);
    all[rank] += schedule.micro_batches;
  }
  std::vector<int> contexts;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const double fitting = largest[rank] > 0 ? std::floor(std::max(0.0, room[rank]) / largest[rank]) : all[rank];
    contexts.push_back(static_cast<int>(std::min<double>(fitting, all[rank])));
  }
  return contexts;
}

/// All trials at one m.
class Trials {
 public:
  Trials(const LayerCosts& costs, int micro_batches)
      : costs_(costs), sums_(costs, micro_batches), cutter_(costs, sums_) {}

  /// Tries `candidate` in stream or fused; a fused step that does not fit is followed by a grouped one.
  void run(Candidate candidate, std::vector<Outcome>& outcomes) {
    const Schedule base = candidate.words(Costs::unit());
    outcomes.push_back(best_of(candidate, with_weights(candidate, base)));
    if (candidate.weight_gradients != WeightMode::fused || outcomes.back().trial.fits) return;
    candidate.weight_gradients = WeightMode::grouped;
    if (auto grouped = grouped_within_cap(candidate, base)) outcomes.push_back(*std::move(grouped));
  }

 private:
  static Schedule with_weights(const Candidate& candidate, Schedule words) {
    return candidate.weight_gradients == WeightMode::fused ? fuse_w(words) : words;
  }

  double cap() const { return costs_.memory_cap_bytes.value_or(std::numeric_limits<double>::infinity()); }

  Outcome outcome_of(const Candidate& candidate, const StageCut& cut, Schedule schedule) const {
    Outcome outcome{{.schedule = std::string(candidate.generator.name),
                     .chunks = candidate.shape.chunks,
                     .micro_batches = candidate.shape.micro_batches,
                     .weight_gradients = candidate.weight_gradients,
                     .cut = cut.kind,
                     .is_exact = cut.is_exact,
                     .fits = false,
                     .prediction = {}},
                    cut.stages,
                    std::move(schedule)};
    outcome.trial.prediction.memory_bytes = memory_bytes(sums_, outcome.schedule, cut.stages);
    outcome.trial.fits = most_bytes(outcome) <= cap();
    return outcome;
  }

  static double most_bytes(const Outcome& outcome) {
    const std::vector<double>& bytes = outcome.trial.prediction.memory_bytes;
    return *std::max_element(bytes.begin(), bytes.end());
  }

  Costs costs_of(const Schedule& words, const Stages& stages) const {
    return stage_costs(sums_, words.rank_of_stage, stages);
  }

  void predict(Outcome& outcome) const {
    const Simulation simulation = simulate(outcome.schedule, costs_of(outcome.schedule, outcome.stages));
    Prediction& prediction = outcome.trial.prediction;
    prediction.makespan = simulation.makespan;
    prediction.bubble_makespan = std::max(0.0, simulation.bubble_makespan);  // below 0 by rounding alone
    prediction.bubble_span = std::max(0.0, simulation.bubble_span);
    prediction.peak_activations = simulation.peak_activations;
  }

  /// `words` show the placement, and what is held; a generator that adapts may hold something else in the end.
  Outcome best_of(const Candidate& candidate, const Schedule& words) {
    std::optional<Outcome> best;
    const auto consider = [&](const StageCut& cut) {
      const Schedule fitted = candidate.words(costs_of(words, cut.stages));
      Outcome outcome = outcome_of(candidate, cut, with_weights(candidate, fitted));
      if (outcome.trial.fits) predict(outcome);
      if (!best || goes_before(outcome, *best)) best = std::move(outcome);
    };
    for (const StageCut& cut : cutter_.cuts(words)) consider(cut);
    if (!best || !best->trial.fits) consider(cutter_.smallest(words));
    return *std::move(best);
  }

  /// With the cut that is best in stream.
  std::optional<Outcome> grouped_within_cap(const Candidate& candidate, const Schedule& base) {
    Candidate in_stream = candidate;
    in_stream.weight_gradients = WeightMode::stream;
    Outcome outcome = best_of(in_stream, base);
    if (!outcome.trial.fits) return std::nullopt;
    const std::vector<int> limit = room_for_contexts(sums_, outcome.schedule, outcome.stages, cap());
    const std::vector<int> least = smallest_fuse_limit(outcome.schedule);
    for (std::size_t rank = 0; rank < limit.size(); ++rank)
      if (limit[rank] < least[rank]) return std::nullopt;
    outcome = outcome_of(candidate, {outcome.trial.cut, outcome.trial.is_exact, outcome.stages},
                         fuse_w(outcome.schedule, {.group = 0, .activation_limit = limit}));
    predict(outcome);
    return outcome;
  }

  const LayerCosts& costs_;
  LayerSums sums_;
  StageCutter cutter_;
};

std::vector<const Generator*> generators_of(const PlanWishes& wishes) {
  std::vector<const Generator*> chosen;
  const auto trains = [](const Generator& generator) {
    return !generate(generator.name, {.ranks = 1, .micro_batches = 1, .chunks = generator.default_chunks})
                .is_forward_only();
  };
  for (const std::string& name : wishes.schedules) {
    const Generator& generator = find_generator(name);
    require<ConfigError>(trains(generator), "schedule '", name, "' only goes forward: a plan is for training");
    chosen.push_back(&generator);
  }
  if (wishes.schedules.empty())
    for (const Generator& generator : generators())
      if (trains(generator)) chosen.push_back(&generator);
  return chosen;
}

/// No more stages than layers.
int most_chunks_for(const Generator& generator, const LayerCosts& costs) {
  const auto layers = static_cast<std::int64_t>(costs.layers.size());
  return static_cast<int>(std::min<std::int64_t>({most_chunks, generator.max_chunks, layers / costs.ranks}));
}

/// The memory limits that give different words; costs are left out of account.
std::vector<double> limits_that_matter(const Generator& generator, const ScheduleShape& shape) {
  if (!generator.fits_limit) return {1};
  std::vector<double> limits;
  std::vector<Schedule> seen;
  for (const double limit : memory_limits) {
    Schedule words = generate(generator.name, shape, {.costs = {}, .memory_limit = limit});
    if (std::find(seen.begin(), seen.end(), words) != seen.end()) continue;
    seen.push_back(std::move(words));
    limits.push_back(limit);
  }
  return limits;
}

Plan plan_of(const LayerCosts& costs, const Outcome& outcome) {
  Plan plan{.costs = {},
            .time_unit = costs.time_unit,
            .weight_gradients = outcome.trial.weight_gradients,
            .stages = {},
            .prediction = outcome.trial.prediction,
            .schedule = outcome.schedule};
  for (const Stretch& stage : outcome.stages) {
    plan.stages.emplace_back();
    for (int layer = stage.begin; layer < stage.end; ++layer)
      plan.stages.back().push_back(costs.layers[static_cast<std::size_t>(layer)].name);
  }
  return plan;
}

}  // namespace

const char* to_string(CutKind kind) {
  switch (kind) {
    case CutKind::time: return "time";
    case CutKind::uniform: return "uniform";
    case CutKind::parameters: return "parameters";
    case CutKind::memory: return "memory";
  }
  return "";
}

Planned make_plan(const LayerCosts& costs, const PlanWishes& wishes) {
  const std::string costs_fingerprint = fingerprint(costs);  // refuses costs that no file could hold
  const auto layers = static_cast<std::int64_t>(costs.layers.size());
  std::vector<WeightMode> modes = {WeightMode::stream, WeightMode::fused};
  if (wishes.weight_gradients) modes = {*wishes.weight_gradients};
  require<ConfigError>(wishes.weight_gradients != WeightMode::grouped,
                       "grouped weight gradients are what fused ones become where memory is short: ask for fused");

  Planned planned;
  std::vector<Outcome> outcomes;
  const std::vector<const Generator*> chosen = generators_of(wishes);
  for (const Generator* generator : chosen) {
    const int most = most_chunks_for(*generator, costs);
    if (most < std::min(generator->max_chunks, most_chunks))
      planned.left_out.push_back(say(generator->name, " with ", std::max(most + 1, generator->min_chunks),
                                     " or more chunks per rank: ", layers, " layers are too few"));
  }
  for (const int m : candidate_micro_batches(costs)) {
    Trials trials(costs, m);
    for (const Generator* generator : chosen)
      for (int v = generator->min_chunks; v <= most_chunks_for(*generator, costs); ++v) {
        const ScheduleShape shape{.ranks = costs.ranks, .micro_batches = m, .chunks = v};
        for (const double limit : limits_that_matter(*generator, shape))
          for (const WeightMode mode : modes) trials.run({*generator, shape, limit, mode}, outcomes);
      }
  }
  require<PlanError>(!outcomes.empty(), "nothing can be tried: ", layers, " layers do not make a stage for each of ",
                     costs.ranks, " ranks and their chunks; use fewer ranks");
  std::stable_sort(outcomes.begin(), outcomes.end(), goes_before);
  const Outcome& best = outcomes.front();
  const std::vector<double>& bytes = best.trial.prediction.memory_bytes;
  require<PlanError>(best.trial.fits, "no schedule fits into ", std::llround(costs.memory_cap_bytes.value_or(0)),
                     " bytes per rank: the smallest cap that would do is ",
                     std::llround(*std::max_element(bytes.begin(), bytes.end())), " bytes, with '", best.trial.schedule,
                     "', ", best.trial.chunks, " chunk(s) per rank and ", best.trial.micro_batches, " micro-batches");
  planned.plan = plan_of(costs, best);
  planned.plan.costs = costs_fingerprint;
  for (Outcome& outcome : outcomes) planned.trials.push_back(std::move(outcome.trial));
  return planned;
}

}  // namespace penstock
