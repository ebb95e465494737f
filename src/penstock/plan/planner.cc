#include "penstock/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/candidate.h"
#include "penstock/plan/stage_partitioner.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

/// For generators that adapt.
std::vector<MemoryLimit> memory_limits(const PlanConstraints& constraints) {
  std::vector<MemoryLimit> limits{TimesOf1F1B{1}, TimesOf1F1B{1.5}, TimesOf1F1B{2}};
  if (const auto most = constraints.memory_limit) {
    // Multiples and bytes cannot be compared before there is a partition.
    if (!is_in_bytes(*most)) std::erase_if(limits, [&](const MemoryLimit& limit) { return limit >= *most; });
    limits.push_back(*most);
  }
  return limits;
}

/// The layers of each stage as ranges. Throws ConfigError unless they are the layers of `costs`, in this order.
Stages ranges_of(const StageLayers& layers, const LayerCosts& costs) {
  Stages stages;
  int next = 0;
  for (const std::vector<std::string>& stage : layers) {
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
  return stages;
}

/// A generator with its settings.
struct Attempt {
  const ScheduleGenerator* generator = nullptr;
  ScheduleShape shape;
  MemoryLimit memory_limit = TimesOf1F1B{1};

  /// The generator's schedule, without fused W's.
  Schedule instructions(const StageCosts& costs) const {
    return generate(generator->name, shape, {.costs = costs, .memory_limit = memory_limit});
  }
};

std::optional<MemoryLimit> limit_of(const Attempt& attempt) {
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

/// Per rank, the bytes of the cap that the parameters leave to activations.
std::vector<double> left_by_parameters(const LayerSums& sums, const Schedule& schedule, const Stages& stages,
                                       double cap) {
  std::vector<double> left(schedule.orders.size(), cap);
  for (std::size_t s = 0; s < stages.size(); ++s)
    left[schedule.rank_of_stage[s].index()] -= sums.parameter_bytes(stages[s]);
  return left;
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
  /// Both must outlive the candidates.
  Candidates(const LayerCosts& costs, const PlanConstraints& constraints, int micro_batches)
      : costs_(costs),
        constraints_(constraints),
        sums_(costs, micro_batches),
        partitioner_(costs, sums_, constraints.memory_limit) {}

  /// Adds the candidates of `attempt` in each mode to `outcomes`; if the fused one does not fit, also the grouped
  /// one. `base` is the schedule of `attempt` with the costs of even_stages(), which shows the placement and the live
  /// micro-batches.
  void run(const Attempt& attempt, const Schedule& base, const std::vector<WeightGradients>& modes,
           std::vector<Outcome>& outcomes) {
    std::optional<Outcome> in_stream;
    const auto best_in_stream = [&] {
      if (!in_stream) in_stream = best_of(attempt, base, WeightGradients::stream);
      return *in_stream;
    };
    for (const WeightGradients mode : modes) {
      outcomes.push_back(mode == WeightGradients::stream ? best_in_stream() : best_of(attempt, base, mode));
      if (mode != WeightGradients::fused || outcomes.back().candidate.fits) continue;
      if (auto grouped = grouped_within_cap(best_in_stream())) outcomes.push_back(*std::move(grouped));
    }
  }

  Schedule schedule_of(const Outcome& outcome) const {
    const WeightGradients mode = outcome.candidate.weight_gradients;
    const Schedule instructions = outcome.attempt.instructions(outcome.costs);
    if (mode == WeightGradients::grouped)
      return fuse_w(instructions, {.group = 0, .activation_limit = fitting_in_both(instructions, outcome)});
    return with_weights(instructions, mode);
  }

 private:
  static Schedule with_weights(const Schedule& instructions, WeightGradients mode) {
    return mode == WeightGradients::fused ? fuse_w(instructions) : instructions;
  }

  double cap() const { return costs_.memory_cap_bytes.value_or(std::numeric_limits<double>::infinity()); }

  /// The number of live micro-batches per rank that the memory cap and the memory limit permit.
  std::vector<int> fitting_in_both(const Schedule& instructions, const Outcome& outcome) const {
    std::vector<int> fitting =
        contexts_within(instructions, outcome.costs, left_by_parameters(sums_, instructions, outcome.stages, cap()));
    if (!constraints_.memory_limit) return fitting;
    const std::vector<int> limit = activation_limit(instructions, *constraints_.memory_limit, outcome.costs);
    for (std::size_t rank = 0; rank < limit.size(); ++rank) fitting[rank] = std::min(fitting[rank], limit[rank]);
    return fitting;
  }

  /// Sets Candidate::prediction, Candidate::fits and Candidate::needed_limit.
  void predict(Outcome& outcome) const {
    Candidate& candidate = outcome.candidate;
    const Schedule schedule = schedule_of(outcome);
    candidate.prediction.memory_bytes = memory_bytes(sums_, schedule, outcome.stages);
    candidate.fits = candidate.prediction.most_bytes() <= cap();
    if (const auto limit = constraints_.memory_limit) {
      candidate.needed_limit = needed_memory_limit(schedule, *limit, outcome.costs);
      candidate.fits = candidate.fits && is_within_limit(schedule, *limit, outcome.costs);
    }
    if (!candidate.fits) return;
    report_time(simulate(schedule, outcome.costs), candidate.prediction);
  }

  /// The candidate with the best partition. The partitions are made for the memory of `base`; the schedule of a
  /// generator that adapts to costs may need more or less.
  Outcome best_of(const Attempt& attempt, const Schedule& base, WeightGradients mode) {
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
                           .needed_limit = {},
                           .prediction = {}},
                          attempt,
                          partition.stages,
                          stage_costs(sums_, instructions.rank_of_stage, partition.stages)});
      predict(outcomes.back());
    };
    const bool is_given = !constraints_.stages.empty();
    if (is_given)
      consider({PartitionKind::given, /*is_exact=*/true, ranges_of(constraints_.stages, costs_)});
    else
      for (const StagePartition& partition : partitioner_.partitions(instructions)) consider(partition);
    if (!is_given &&
        std::none_of(outcomes.begin(), outcomes.end(), [](const Outcome& outcome) { return outcome.candidate.fits; }))
      consider(partitioner_.smallest(instructions));
    put_in_order(outcomes);
    return std::move(outcomes.front());
  }

  /// The candidate with grouped weight gradients and the partition of `outcome`, the best one in stream mode; none if
  /// the cap is too small even for single W's.
  std::optional<Outcome> grouped_within_cap(Outcome outcome) const {
    if (!outcome.candidate.fits) return std::nullopt;
    const Schedule instructions = schedule_of(outcome);
    const std::vector<int> limit = fitting_in_both(instructions, outcome);
    const std::vector<int> least = smallest_fuse_limit(instructions);
    for (std::size_t rank = 0; rank < limit.size(); ++rank)
      if (limit[rank] < least[rank]) return std::nullopt;
    outcome.candidate.weight_gradients = WeightGradients::grouped;
    predict(outcome);
    return outcome;
  }

  const LayerCosts& costs_;
  const PlanConstraints& constraints_;
  LayerSums sums_;
  StagePartitioner partitioner_;
};

std::vector<const ScheduleGenerator*> generators_of(const PlanConstraints& constraints) {
  std::vector<const ScheduleGenerator*> chosen;
  const auto trains = [](const ScheduleGenerator& generator) {
    return !generate(generator.name, {.ranks = 1, .micro_batches = 1, .chunks = generator.default_chunks})
                .is_forward_only();
  };
  for (const std::string& name : constraints.schedules) {
    const ScheduleGenerator& generator = find_generator(name);
    require<ConfigError>(trains(generator), "schedule '", name, "' only goes forward: a plan is for training");
    chosen.push_back(&generator);
  }
  if (constraints.schedules.empty())
    for (const ScheduleGenerator& generator : generators())
      if (trains(generator)) chosen.push_back(&generator);
  return chosen;
}

/// The numbers of chunks per rank to try, `least` to `most`; none if `least` is larger.
struct ChunkRange {
  int least = 1;
  int most = 1;
};

/// A stage has at least one layer, and at least one block unless even one stage per rank, or the given number, cuts
/// blocks.
ChunkRange chunks_to_try(const ScheduleGenerator& generator, const LayerCosts& costs,
                         const PlanConstraints& constraints) {
  const int units = count_units(blocks_of(costs));
  const bool cuts_blocks = units < costs.ranks * constraints.chunks.value_or(1);
  const std::int64_t layers = cuts_blocks ? std::ssize(costs.layers) : units;
  const auto most_of = [&](int most) {
    return static_cast<int>(std::min<std::int64_t>({most, generator.max_chunks, layers / costs.ranks}));
  };
  if (const auto given = constraints.chunks) return {std::max(*given, generator.min_chunks), most_of(*given)};
  return {generator.min_chunks, most_of(most_chunks)};
}

/// Unit costs, with equal parts of the activations of all layers for the stages of `shape`.
StageCosts even_stages(const LayerCosts& costs, const ScheduleShape& shape) {
  StageCosts even = StageCosts::unit();
  const LayerSums sums(costs, shape.micro_batches);
  even.activation_bytes = {sums.activation_bytes({0, sums.layers()}) / (shape.ranks * shape.chunks)};
  return even;
}

/// Throws ConfigError unless the constraints agree with each other and with the costs. Returns them with the chunks
/// that follow from the stages.
PlanConstraints completed(PlanConstraints constraints, const LayerCosts& costs) {
  require<ConfigError>(constraints.weight_gradients != WeightGradients::grouped,
                       "grouped weight gradients replace fused ones if memory is short: ask for fused");
  require<ConfigError>(constraints.chunks.value_or(1) >= 1, "a plan with ", constraints.chunks.value_or(1),
                       " chunks per rank: at least 1 is needed");
  if (constraints.memory_limit) require_memory_limit(*constraints.memory_limit, even_stages(costs, {}));
  if (constraints.stages.empty()) return constraints;
  const int stages = static_cast<int>(constraints.stages.size());
  for (int s = 0; s < stages; ++s)
    require<ConfigError>(!constraints.stages[static_cast<std::size_t>(s)].empty(), "stage ", s,
                         " has no layers, but a plan needs one on every stage: leave the stage out");
  ranges_of(constraints.stages, costs);
  require<ConfigError>(stages % costs.ranks == 0, "the layers are on ", stages, " stages, which ", costs.ranks,
                       " ranks cannot share equally: use a multiple of ", costs.ranks);
  const int chunks = constraints.chunks.value_or(stages / costs.ranks);
  require<ConfigError>(chunks * costs.ranks == stages, "the layers are on ", stages, " stages, but ", costs.ranks,
                       " ranks with ", chunks, " chunks each have ", chunks * costs.ranks, ": leave the chunks out");
  constraints.chunks = stages / costs.ranks;
  return constraints;
}

/// An attempt with its schedule for the costs of even_stages().
struct Base {
  Attempt attempt;
  Schedule instructions;
};

/// The attempts with a generator: one for each memory limit that makes a different schedule.
std::vector<Base> bases_of(const ScheduleGenerator& generator, const ScheduleShape& shape, const LayerCosts& costs,
                           const PlanConstraints& constraints) {
  std::vector<Base> bases;
  const StageCosts even = even_stages(costs, shape);
  for (const MemoryLimit& limit : memory_limits(constraints)) {
    const Attempt attempt{&generator, shape, limit};
    Schedule instructions = attempt.instructions(even);
    // Of a limit in bytes each partition makes another use.
    if (is_in_bytes(limit) ||
        std::none_of(bases.begin(), bases.end(), [&](const Base& other) { return other.instructions == instructions; }))
      bases.push_back({attempt, std::move(instructions)});
    if (!generator.fits_limit) break;
  }
  return bases;
}

Plan plan_of(const LayerCosts& costs, const PlanConstraints& constraints, const Outcome& outcome) {
  Plan plan{.costs = fingerprint(costs),
            .time_unit = costs.time_unit,
            .weight_gradients = outcome.candidate.weight_gradients,
            .kernels = costs.kernels,
            .stages = {},
            .prediction = outcome.candidate.prediction,
            .schedule = Candidates(costs, constraints, outcome.candidate.micro_batches).schedule_of(outcome)};
  for (const LayerRange& stage : outcome.stages) {
    plan.stages.emplace_back();
    for (int layer = stage.begin; layer < stage.end; ++layer)
      plan.stages.back().push_back(costs.layers[static_cast<std::size_t>(layer)].name);
  }
  return plan;
}

/// Throws the error of a planner none of whose candidates fits. `outcomes` are sorted.
void require_fitting(const LayerCosts& costs, const PlanConstraints& constraints,
                     const std::vector<Outcome>& outcomes) {
  if (outcomes.front().candidate.fits) return;
  const auto with = [](const Candidate& candidate) {
    return say("with '", candidate.schedule, "', ", counted(candidate.chunks, "chunk"), " per rank and ",
               candidate.micro_batches, " micro-batches");
  };
  const Candidate& smallest = outcomes.front().candidate;
  const auto cap = costs.memory_cap_bytes;
  require<ScheduleError>(!cap || smallest.prediction.most_bytes() <= *cap, "no schedule fits into ",
                         std::llround(cap.value_or(0)), " bytes per rank: the smallest cap that would do is ",
                         std::llround(smallest.prediction.most_bytes()), " bytes, ", with(smallest));
  const Candidate* least = nullptr;
  for (const Outcome& outcome : outcomes)
    if ((!cap || outcome.candidate.prediction.most_bytes() <= *cap) &&
        (!least || outcome.candidate.needed_limit < least->needed_limit))
      least = &outcome.candidate;
  const MemoryLimit& limit = constraints.memory_limit.value();
  throw ScheduleError(say("no schedule stays within a memory limit of ", to_string(limit),
                          is_in_bytes(limit) ? " of activations per rank" : " (times 1F1B's live micro-batches)",
                          ": the smallest limit that would do is ", to_string(least->needed_limit.value()), ", ",
                          with(*least)));
}

}  // namespace

Planned make_plan(const LayerCosts& costs, const PlanConstraints& wanted) {
  fingerprint(costs);  // throws for costs out of range
  const PlanConstraints constraints = completed(wanted, costs);
  const std::vector<std::string> blocks = blocks_of(costs);
  const std::string remark =
      constraints.stages.empty() ? remark_on_blocks(blocks, costs.ranks * constraints.chunks.value_or(1)) : "";
  const bool has_units = remark.empty() && count_units(blocks) < std::ssize(blocks);
  const std::string layers =
      has_units ? say(count_units(blocks), " blocks and layers between them") : say(blocks.size(), " layers");
  std::vector<WeightGradients> modes = {WeightGradients::stream, WeightGradients::fused};
  if (constraints.weight_gradients != WeightGradients::automatic) modes = {constraints.weight_gradients};

  Planned planned;
  for (const LayerCost& layer : costs.layers)
    if (!layer.block.empty()) planned.block_of_layer[layer.name] = layer.block;
  if (!remark.empty()) planned.left_out.push_back("partitions that cut no block: " + remark);
  std::vector<Outcome> outcomes;
  const std::vector<const ScheduleGenerator*> chosen = generators_of(constraints);
  for (const ScheduleGenerator* generator : chosen) {
    const int most = chunks_to_try(*generator, costs, constraints).most;
    if (most < std::min(generator->max_chunks, constraints.chunks.value_or(most_chunks)))
      planned.left_out.push_back(say(generator->name, " with ", std::max(most + 1, generator->min_chunks),
                                     " or more chunks per rank: ", layers, " are too few"));
  }
  for (const int m : candidate_micro_batches(costs)) {
    Candidates candidates(costs, constraints, m);
    for (const ScheduleGenerator* generator : chosen) {
      const ChunkRange chunks = chunks_to_try(*generator, costs, constraints);
      for (int v = chunks.least; v <= chunks.most; ++v) {
        const ScheduleShape shape{.ranks = costs.ranks, .micro_batches = m, .chunks = v};
        for (const auto& [attempt, instructions] : bases_of(*generator, shape, costs, constraints))
          candidates.run(attempt, instructions, modes, outcomes);
      }
    }
  }
  require<ScheduleError>(!outcomes.empty(), "nothing can be tried: ", layers, " do not make a stage for each of ",
                         costs.ranks, " ranks and their ",
                         constraints.chunks ? say(*constraints.chunks, " chunks; use fewer ranks or other chunks")
                                            : "chunks; use fewer ranks");
  put_in_order(outcomes);
  require_fitting(costs, constraints, outcomes);
  planned.slowdown_under_load = costs.slowdown_under_load;
  for (const Outcome& outcome : outcomes) planned.candidates.push_back(outcome.candidate);
  const auto plan_number = [&](std::size_t index) { return plan_of(costs, constraints, outcomes[index]); };
  planned.plan = plan_number(0);
  for (const std::size_t i : finalists_of(planned.candidates, constraints.finalists, plan_number))
    planned.finalists.push_back({planned.candidates[i], plan_number(i)});
  return planned;
}

Prediction predict(const Plan& plan, const LayerCosts& costs) {
  const Stages stages = ranges_of(plan.stages, costs);
  const LayerSums sums(costs, plan.schedule.micro_batches);
  Prediction prediction;
  report_time(simulate(plan.schedule, stage_costs(sums, plan.schedule.rank_of_stage, stages)), prediction);
  prediction.memory_bytes = memory_bytes(sums, plan.schedule, stages);
  return prediction;
}

}  // namespace penstock
