#include "penstock/plan/advice.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/plan/layer_sums.h"
#include "penstock/plan/planner.h"
#include "penstock/plan/stage_partitioner.h"
#include "penstock/trace/account.h"

namespace penstock {
namespace {

constexpr double rounding = 1e-9;

std::string ms(double value) { return fixed(value, 2) + " ms"; }
/// The layers of a run, with costs that are scaled to the measured times.
struct Layers {
  LayerCosts costs;
  Stages stages;
  LayerSums sums;
};

/// The ranges of `layers` that have the names of each stage.
Stages stages_of(const StageLayers& names, const std::vector<LayerCost>& layers, const Schedule& instructions) {
  require<DataError>(names.size() == instructions.rank_of_stage.size(), "the trace names the layers of ", names.size(),
                     " stages, and its schedule has ", instructions.rank_of_stage.size());
  Stages stages;
  int at = 0;
  for (const auto& stage : names) {
    stages.push_back({at, at});
    for (const std::string& name : stage) {
      const bool is_known = at < static_cast<int>(layers.size());
      const std::string expected = is_known ? say("'", layers[static_cast<std::size_t>(at)].name, "'") : "no layer";
      require<DataError>(is_known && layers[static_cast<std::size_t>(at)].name == name, "layer ", at,
                         " of the trace is '", name, "', and the costs have ", expected,
                         " there: these are not the costs of this run's model");
      ++at;
    }
    stages.back().end = at;
  }
  require<DataError>(at == static_cast<int>(layers.size()), "the trace names ", at, " layers, and the costs have ",
                     layers.size(), ": these are not the costs of this run's model");
  return stages;
}

const std::string* setting(const Trace& trace, const char* name) {
  const auto found = trace.settings.find(name);
  return found == trace.settings.end() ? nullptr : &found->second;
}

/// The machines of a run: rank r on device r.
/// The times that stages would have had on devices of speed 1.
StageCosts at_speed_one(StageCosts measured, const Schedule& instructions, const Site& site) {
  for (std::vector<double>* list : {&measured.forward, &measured.input_grad, &measured.weight_grad, &measured.update})
    for (std::size_t s = 0; s < list->size(); ++s) (*list)[s] /= site.slowness(instructions.rank_of_stage[s]);
  return measured;
}

std::optional<Layers> layers_of(const Trace& trace, const Schedule& instructions, const StageCosts& measured,
                                const std::optional<LayerCosts>& given, const std::optional<Cluster>& cluster) {
  const std::string* names = setting(trace, layers_setting);
  const std::string* carried = setting(trace, layer_costs_setting);
  require<ConfigError>(names || (!given && !cluster),
                       "the trace does not say which layers its stages have (no setting '", layers_setting,
                       "'): costs of layers cannot be used; leave them out");
  if (!names || (!given && !carried)) return std::nullopt;
  const LayerCosts costs = given ? *given : read_layer_costs(*carried);
  Stages stages = stages_of(read_stage_layers(*names), costs.layers, instructions);
  LayerCosts in_ms = costs;
  in_ms.time_unit = "ms";  // as the times of the trace
  const Site site =
      cluster ? Site(*cluster, listed_placement(*cluster, {instructions.rank_count(), 1}), in_ms) : Site(costs);
  LayerCosts fitted = calibrated(costs, {instructions, stages, at_speed_one(measured, instructions, site)});
  LayerSums sums(fitted, instructions.micro_batches, cluster ? site : Site(fitted));
  return Layers{std::move(fitted), std::move(stages), std::move(sums)};
}

/// The model of a run, which simulates it with other settings.
class Advisor {
 public:
  Advisor(const Advisor&) = delete;
  Advisor& operator=(const Advisor&) = delete;
  Advisor(const Trace& trace, const std::optional<LayerCosts>& given, const std::optional<Cluster>& cluster)
      : figures_(account(trace)),
        instructions_(strip(trace.schedule)),
        links_(executed_links(trace.schedule)),
        costs_(measured_costs(trace)),
        layers_(layers_of(trace, instructions_, costs_, given, cluster)),
        between_(figures_.between_steps_ms.value_or(0)) {
    is_training_ = !instructions_.is_forward_only();
    is_split_ = gradient_instructions(instructions_).unsplit < 1;
    if (layers_) {
      costs_ = costs_of(instructions_, layers_->stages);
      partitioner_.emplace(layers_->costs, layers_->sums);
    }
    now_ = run(instructions_, costs_).makespan;
  }

  Advice advice() {
    Advice advice{.step_ms = now_ + between_, .recommendations = {}, .sentence = {}};
    const auto consider = [&](const std::optional<Idea>& idea) {
      if (!idea) return;
      const double saved = advice.step_ms > 0 ? 1 - idea->step_ms / advice.step_ms : 0;
      advice.recommendations.push_back({idea->kind, idea->step_ms, saved,
                                        say(idea->claim, " ", percent(saved), " of a step: ", ms(idea->step_ms),
                                            " instead of ", ms(advice.step_ms), idea->ending)});
    };
    if (is_training_) {
      consider(other_schedule());
      consider(fused());
    }
    consider(layers_ ? other_partition() : even_partition());
    consider(instant_messages());
    consider(instant_update());
    consider(punctual_loader());
    std::stable_sort(advice.recommendations.begin(), advice.recommendations.end(),
                     [](const Recommendation& a, const Recommendation& b) { return a.saved > b.saved; });
    advice.sentence = advice.recommendations.empty() || advice.recommendations.front().saved < least_saving
                          ? nothing_found()
                          : say("What would help most: ", advice.recommendations.front().sentence, ".");
    return advice;
  }

 private:
  /// A possible recommendation.
  struct Idea {
    RecommendationKind kind;
    double step_ms;
    std::string claim;  // the beginning of the sentence, up to the saving
    std::string ending = {};
  };

  StageCosts costs_of(const Schedule& instructions, const Stages& stages) const {
    return stage_costs(layers_->sums, instructions.rank_of_stage, stages);
  }

  /// Uses the links of the run, which belong to its stages, if the stages are the same.
  Simulation run(const Schedule& instructions, const StageCosts& costs) const {
    if (instructions.stage_count() != instructions_.stage_count()) return simulate(instructions, costs);
    return simulate(instructions, costs, {.links = links_, .keep_slots = false});
  }

  bool fits(const Schedule& instructions, const Stages& stages) const {
    if (!layers_->sums.site().limits_memory()) return true;
    const std::vector<double> bytes = memory_bytes(layers_->sums, instructions, stages);
    for (Rank rank(0); rank.value() < instructions.rank_count(); rank = rank.next())
      if (bytes[rank.index()] > layers_->sums.site().memory(rank)) return false;
    return true;
  }

  /// A schedule with its partition.
  struct Attempt {
    Schedule instructions;
    Stages stages;  // empty without layers
    double makespan = std::numeric_limits<double>::infinity();
    double most_held = 0;  // peak activations of the fullest rank

    /// True if this one is faster, or as fast with less memory.
    bool is_better_than(const Attempt& other) const {
      if (makespan < other.makespan * (1 - rounding)) return true;
      return makespan <= other.makespan * (1 + rounding) && most_held < other.most_held * (1 - rounding);
    }
  };

  static double most_held(const Simulation& simulation) {
    return *std::max_element(simulation.peak_activations.begin(), simulation.peak_activations.end());
  }

  /// `instructions` with the fastest partition that fits; without stages if none fits.
  Attempt with_best_partition(Schedule instructions) {
    Attempt best{.instructions = std::move(instructions), .stages = {}};
    for (const StagePartition& partition : partitioner_->partitions(best.instructions)) {
      const double makespan = run(best.instructions, costs_of(best.instructions, partition.stages)).makespan;
      if (makespan < best.makespan && fits(best.instructions, partition.stages)) {
        best.makespan = makespan;
        best.stages = partition.stages;
      }
    }
    return best;
  }

  /// A generator's schedule in the weight mode of the run; with the run's partition if it has the same number of
  /// stages.
  std::optional<Attempt> attempt_with(const ScheduleGenerator& generator, int chunks) {
    const ScheduleShape shape{instructions_.rank_count(), instructions_.micro_batches, chunks};
    const bool has_own_partition = instructions_.stage_count() == shape.ranks * chunks;
    const WeightGradients mode = weight_gradients_of(instructions_);
    const auto in_mode = [mode](const Schedule& instructions) {
      return mode == WeightGradients::stream ? instructions : fuse_w(instructions);
    };
    StageCosts costs = costs_;
    Attempt attempt{.instructions = in_mode(generate(generator.name, shape)),
                    .stages = layers_ ? layers_->stages : Stages{}};
    if (!has_own_partition) attempt = with_best_partition(std::move(attempt.instructions));
    if (layers_ && attempt.stages.empty()) return std::nullopt;
    if (layers_) costs = costs_of(attempt.instructions, attempt.stages);
    attempt.instructions = in_mode(generate(generator.name, shape, {.costs = costs, .memory_limit = TimesOf1F1B{1}}));
    // The run never split B, so the times of I and W are unknown.
    if (!layers_ && !is_split_ && gradient_instructions(attempt.instructions).unsplit < 1) return std::nullopt;
    if (attempt.instructions.orders == instructions_.orders || (layers_ && !fits(attempt.instructions, attempt.stages)))
      return std::nullopt;
    const Simulation simulation = run(attempt.instructions, costs);
    attempt.makespan = simulation.makespan;
    attempt.most_held = most_held(simulation);
    return attempt;
  }

  std::optional<Idea> other_schedule() {
    const int p = instructions_.rank_count();
    if (instructions_.stage_count() % p != 0) return std::nullopt;
    const int own = instructions_.stage_count() / p;
    std::optional<Attempt> best;
    for (const ScheduleGenerator& generator : generators()) {
      if (!trains(generator)) continue;
      const int most = layers_ ? std::min({most_chunks, generator.max_chunks, layers_->sums.layers() / p}) : own;
      for (int chunks = layers_ ? generator.min_chunks : own; chunks <= most; ++chunks) {
        if (chunks < generator.min_chunks || chunks > generator.max_chunks) continue;
        auto attempt = attempt_with(generator, chunks);
        if (attempt && (!best || attempt->is_better_than(*best))) best = std::move(attempt);
      }
    }
    if (!best) return std::nullopt;
    const int chunks = best->instructions.stage_count() / p;
    return Idea{
        RecommendationKind::schedule, best->makespan + between_,
        say("schedule '", best->instructions.name, "'", chunks > 1 ? say(" with ", chunks, " chunks per rank") : "",
            " in place of '", instructions_.name, "' would save"),
        more_memory(best->most_held)};
  }

  /// The end of a sentence about a faster schedule that needs more memory.
  std::string more_memory(double then) const {
    const double now = most_held(run(instructions_, costs_));
    if (then <= now * (1 + rounding)) return "";
    return say("; its fullest rank holds ", fixed(then, 2), " micro-batches instead of ", fixed(now, 2));
  }

  std::optional<Idea> fused() {
    if (!layers_ || !layers_->sums.has_fused()) return std::nullopt;
    const Schedule instructions = fuse_w(instructions_);
    if (instructions.orders == instructions_.orders || !fits(instructions, layers_->stages)) return std::nullopt;
    const Simulation simulation = run(instructions, costs_);
    return Idea{RecommendationKind::fused, simulation.makespan + between_,
                "fused weight gradients (--weight-gradients fused) would save", more_memory(most_held(simulation))};
  }

  /// The time of a stage for one micro-batch in the instructions of the run, with 1/m of its update.
  double weight_of(std::size_t stage) const {
    const auto at = [&](const std::vector<double>& list) { return value_of_stage(list, stage); };
    if (layers_) return layers_->sums.work_and_update(layers_->stages[stage], gradient_instructions(instructions_));
    return at(costs_.forward) + at(costs_.input_grad) + at(costs_.weight_grad) +
           at(costs_.update) / instructions_.micro_batches;
  }

  /// "stage 1 is 18.0 % heavier than stage 0"; compares ranks if they have several stages.
  std::string imbalance() const {
    const bool by_stage = instructions_.stage_count() == instructions_.rank_count();
    std::vector<double> weights(instructions_.orders.size(), 0);
    for (std::size_t s = 0; s < instructions_.rank_of_stage.size(); ++s)
      weights[by_stage ? s : instructions_.rank_of_stage[s].index()] += weight_of(s);
    const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
    const char* what = by_stage ? "stage " : "rank ";
    return say(what, most - weights.begin(), " is ", *least > 0 ? percent(*most / *least - 1) : "infinitely",
               " heavier than ", what, least - weights.begin());
  }

  std::optional<Idea> other_partition() {
    const Attempt best = with_best_partition(instructions_);
    if (best.stages.empty() || best.stages == layers_->stages) return std::nullopt;
    std::string moves;
    for (std::size_t s = 0; s + 1 < best.stages.size(); ++s) {
      if (best.stages[s].end == layers_->stages[s].end) continue;
      const auto last_of = [&](const Stages& stages) {
        return layers_->costs.layers[static_cast<std::size_t>(stages[s].end - 1)].name;
      };
      moves += say(moves.empty() ? "" : ", ", "a boundary after layer '", last_of(best.stages), "' instead of '",
                   last_of(layers_->stages), "'");
    }
    return Idea{RecommendationKind::partition, best.makespan + between_, say(imbalance(), ": ", moves, " would save")};
  }

  std::optional<Idea> even_partition() {
    if (instructions_.stage_count() == 1) return std::nullopt;
    StageCosts even = costs_;
    for (std::vector<double>* list : {&even.forward, &even.input_grad, &even.weight_grad, &even.update})
      *list = {std::accumulate(list->begin(), list->end(), 0.0) / static_cast<double>(list->size())};
    return Idea{RecommendationKind::even_partition, run(instructions_, even).makespan + between_,
                say(imbalance(), ": an even partition would save up to"),
                "; --partition time or --schedule auto comes close"};
  }

  std::optional<Idea> instant_messages() {
    if (costs_.message <= 0) return std::nullopt;
    StageCosts instant = costs_;
    instant.message = instant.message_gap = 0;
    instant.messages_forward = instant.messages_backward = {};
    return Idea{RecommendationKind::messages, run(instructions_, instant).makespan + between_,
                say("messages take ", ms(costs_.message), " each: faster ones would save up to")};
  }

  std::optional<Idea> instant_update() {
    const double most = *std::max_element(costs_.update.begin(), costs_.update.end());
    if (most <= 0) return std::nullopt;
    StageCosts instant = costs_;
    instant.update = {0};
    return Idea{RecommendationKind::update, run(instructions_, instant).makespan + between_,
                say("the optimiser's step takes up to ", ms(most), ": a faster one would save up to")};
  }

  std::optional<Idea> punctual_loader() {
    if (between_ <= 0) return std::nullopt;
    return Idea{RecommendationKind::loader, now_,
                say("steps start ", ms(between_), " late: batches that are ready in time would save")};
  }

  std::string nothing_found() const {
    double compute = 0;
    double total = 0;
    for (const RankAccount& rank : figures_.ranks) {
      compute += rank.compute;
      total += rank.total;
    }
    return say("Nothing was found that saves more than ", fixed(100 * least_saving, 0), " %: compute is ",
               percent(total > 0 ? compute / total : 0), " of the ranks' time.");
  }

  Account figures_;
  Schedule instructions_;
  Links links_;
  StageCosts costs_;  // of the run's stages, in ms
  std::optional<Layers> layers_;
  std::optional<StagePartitioner> partitioner_;  // caches one search per placement
  double between_ = 0;
  double now_ = 0;
  bool is_training_ = false;
  bool is_split_ = false;
};

}  // namespace

const char* to_string(RecommendationKind kind) {
  switch (kind) {
    case RecommendationKind::schedule: return "schedule";
    case RecommendationKind::fused: return "fused";
    case RecommendationKind::partition: return "cut";
    case RecommendationKind::even_partition: return "even_cut";
    case RecommendationKind::messages: return "messages";
    case RecommendationKind::update: return "update";
    case RecommendationKind::loader: return "loader";
  }
  return "";
}

void note_costs(const LayerCosts& costs, Trace& trace) {
  if (trace.settings.contains(layers_setting)) trace.settings[layer_costs_setting] = write_layer_costs(costs);
}

Advice advise(const Trace& trace, const std::optional<LayerCosts>& costs, const std::optional<Cluster>& cluster) {
  return Advisor(trace, costs, cluster).advice();
}

}  // namespace penstock
