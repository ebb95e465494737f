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

constexpr double memory_limits[] = {1, 1.5, 2};  // for generators that adapt, in units of 1F1B's activations

/// A generator with its settings.
struct Candidate {
  const Generator* generator = nullptr;
  ScheduleShape shape;
  double memory_limit = 1;

  /// W's not yet fused.
  Schedule words(const Costs& costs) const {
    return generate(generator->name, shape, {.costs = costs, .memory_limit = memory_limit});
  }
};

std::optional<double> limit_of(const Candidate& candidate) {
  return candidate.generator->fits_limit ? std::optional(candidate.memory_limit) : std::nullopt;
}

/// A trial, and what gives its schedule again: the schedules of all trials together would be too large to hold.
struct Outcome {
  Trial trial;
  Candidate candidate;
  Stages stages;
  Costs costs;  // of the stages
};

double most_bytes(const Trial& trial) {
  const std::vector<double>& bytes = trial.prediction.memory_bytes;
  return *std::max_element(bytes.begin(), bytes.end());
}

/// Shorter, then smaller; what does not fit comes behind, by what it needs. Sums of the same costs in another order
/// differ in their last digits: steps whose times round to the same share of the shortest are equally short.
void put_in_order(std::vector<Outcome>& outcomes) {
  constexpr double digits = 1e9;
  double shortest = std::numeric_limits<double>::infinity();
  for (const Outcome& outcome : outcomes)
    if (outcome.trial.fits) shortest = std::min(shortest, outcome.trial.prediction.makespan);
  const auto place_of = [&](const Outcome& outcome) {
    const Trial& trial = outcome.trial;
    const double time = trial.fits ? trial.prediction.makespan : 0;
    return std::tuple(!trial.fits, shortest > 0 ? std::round(time / shortest * digits) : time, most_bytes(trial));
  };
  std::stable_sort(outcomes.begin(), outcomes.end(),
                   [&](const Outcome& a, const Outcome& b) { return place_of(a) < place_of(b); });
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

SimulateOptions varying(const LayerCosts& costs) { return {.links = {}, .keep_slots = false, .spread = costs.spread}; }

/// Fills in all but the bytes.
void tell_time(const Simulation& simulation, Prediction& prediction) {
  prediction.makespan = simulation.makespan;
  prediction.bubble_makespan = std::max(0.0, simulation.bubble_makespan);  // below 0 by rounding alone
  prediction.bubble_span = std::max(0.0, simulation.bubble_span);
  prediction.peak_activations = simulation.peak_activations;
}

/// All trials at one m.
class Trials {
 public:
  Trials(const LayerCosts& costs, int micro_batches)
      : costs_(costs), sums_(costs, micro_batches), cutter_(costs, sums_) {}

  /// Tries `candidate` in each mode; a fused step that does not fit is followed by a grouped one. `base` are its words
  /// for no costs in particular: they show the placement, and what is held.
  void run(const Candidate& candidate, const Schedule& base, const std::vector<WeightMode>& modes,
           std::vector<Outcome>& outcomes) {
    std::optional<Outcome> in_stream;
    const auto best_in_stream = [&] {
      if (!in_stream) in_stream = best_of(candidate, base, WeightMode::stream);
      return *in_stream;
    };
    for (const WeightMode mode : modes) {
      outcomes.push_back(mode == WeightMode::stream ? best_in_stream() : best_of(candidate, base, mode));
      if (mode != WeightMode::fused || outcomes.back().trial.fits) continue;
      if (auto grouped = grouped_within_cap(best_in_stream())) outcomes.push_back(*std::move(grouped));
    }
  }

  Schedule schedule_of(const Outcome& outcome) const {
    const WeightMode mode = outcome.trial.weight_gradients;
    const Schedule words = outcome.candidate.words(outcome.costs);
    if (mode == WeightMode::grouped)
      return fuse_w(words, {.group = 0, .activation_limit = room_for_contexts(sums_, words, outcome.stages, cap())});
    return with_weights(words, mode);
  }

 private:
  static Schedule with_weights(const Schedule& words, WeightMode mode) {
    return mode == WeightMode::fused ? fuse_w(words) : words;
  }

  double cap() const { return costs_.memory_cap_bytes.value_or(std::numeric_limits<double>::infinity()); }

  /// Fills in what the trial says of its schedule.
  void predict(Outcome& outcome) const {
    Trial& trial = outcome.trial;
    const Schedule schedule = schedule_of(outcome);
    trial.prediction.memory_bytes = memory_bytes(sums_, schedule, outcome.stages);
    trial.fits = most_bytes(trial) <= cap();
    if (!trial.fits) return;
    tell_time(simulate(schedule, outcome.costs, varying(costs_)), trial.prediction);
  }

  /// A generator that adapts may hold something else than `base` in the end.
  Outcome best_of(const Candidate& candidate, const Schedule& base, WeightMode mode) {
    const Schedule words = with_weights(base, mode);
    std::vector<Outcome> outcomes;
    const auto consider = [&](const StageCut& cut) {
      outcomes.push_back({{.schedule = std::string(candidate.generator->name),
                           .chunks = candidate.shape.chunks,
                           .micro_batches = candidate.shape.micro_batches,
                           .memory_limit = limit_of(candidate),
                           .weight_gradients = mode,
                           .cut = cut.kind,
                           .is_exact = cut.is_exact,
                           .fits = false,
                           .prediction = {}},
                          candidate,
                          cut.stages,
                          stage_costs(sums_, words.rank_of_stage, cut.stages)});
      predict(outcomes.back());
    };
    for (const StageCut& cut : cutter_.cuts(words)) consider(cut);
    if (std::none_of(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) { return outcome.trial.fits; }))
      consider(cutter_.smallest(words));
    put_in_order(outcomes);
    return std::move(outcomes.front());
  }

  /// With the cut that is best in stream.
  std::optional<Outcome> grouped_within_cap(Outcome outcome) const {
    if (!outcome.trial.fits) return std::nullopt;
    const Schedule words = schedule_of(outcome);
    const std::vector<int> limit = room_for_contexts(sums_, words, outcome.stages, cap());
    const std::vector<int> least = smallest_fuse_limit(words);
    for (std::size_t rank = 0; rank < limit.size(); ++rank)
      if (limit[rank] < least[rank]) return std::nullopt;
    outcome.trial.weight_gradients = WeightMode::grouped;
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

/// A candidate with its words for no costs in particular.
struct Base {
  Candidate candidate;
  Schedule words;
};

/// With the memory limits that give different words.
std::vector<Base> bases_of(const Generator& generator, const ScheduleShape& shape) {
  std::vector<Base> bases;
  for (const double limit : memory_limits) {
    const Candidate candidate{&generator, shape, limit};
    Schedule words = candidate.words(Costs::unit());
    if (std::none_of(bases.begin(), bases.end(), [&](const Base& other) { return other.words == words; }))
      bases.push_back({candidate, std::move(words)});
    if (!generator.fits_limit) break;
  }
  return bases;
}

Plan plan_of(const LayerCosts& costs, const Outcome& outcome) {
  Plan plan{.costs = {},
            .time_unit = costs.time_unit,
            .weight_gradients = outcome.trial.weight_gradients,
            .kernels = costs.kernels,
            .stages = {},
            .prediction = outcome.trial.prediction,
            .schedule = Trials(costs, outcome.trial.micro_batches).schedule_of(outcome)};
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
        for (const auto& [candidate, words] : bases_of(*generator, shape))
          trials.run(candidate, words, modes, outcomes);
      }
  }
  require<PlanError>(!outcomes.empty(), "nothing can be tried: ", layers, " layers do not make a stage for each of ",
                     costs.ranks, " ranks and their chunks; use fewer ranks");
  put_in_order(outcomes);
  const Outcome& best = outcomes.front();
  require<PlanError>(best.trial.fits, "no schedule fits into ", std::llround(costs.memory_cap_bytes.value_or(0)),
                     " bytes per rank: the smallest cap that would do is ", std::llround(most_bytes(best.trial)),
                     " bytes, with '", best.trial.schedule, "', ", best.trial.chunks, " chunk(s) per rank and ",
                     best.trial.micro_batches, " micro-batches");
  planned.plan = plan_of(costs, best);
  planned.plan.costs = costs_fingerprint;
  planned.contention = costs.contention;
  for (Outcome& outcome : outcomes) planned.trials.push_back(std::move(outcome.trial));
  return planned;
}

Prediction foretell(const Plan& plan, const LayerCosts& costs) {
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
  tell_time(simulate(plan.schedule, stage_costs(sums, plan.schedule.rank_of_stage, stages), varying(costs)),
            prediction);
  prediction.memory_bytes = memory_bytes(sums, plan.schedule, stages);
  return prediction;
}

}  // namespace penstock
