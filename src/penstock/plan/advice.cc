#include "penstock/plan/advice.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "penstock/base/error.h"
#include "penstock/plan/calibrate.h"
#include "penstock/plan/layer_sums.h"
#include "penstock/plan/planner.h"
#include "penstock/plan/stage_cutter.h"
#include "penstock/plan/stage_layers.h"
#include "penstock/trace/account.h"
#include "penstock/trace/text_table.h"

namespace penstock {
namespace {

constexpr double rounding = 1e-9;

std::string ms(double value) { return fixed(value, 2) + " ms"; }
std::string percent(double share) { return fixed(100 * share, 1) + " %"; }

/// The layers of a run, with costs that give what was measured.
struct Layers {
  LayerCosts costs;
  Stages stages;
  LayerSums sums;
};

/// Where `names` stand in `layers`.
Stages stages_of(const StageLayers& names, const std::vector<LayerCost>& layers, const Schedule& words) {
  require<DataError>(names.size() == words.rank_of_stage.size(), "the trace names the layers of ", names.size(),
                     " stages, and its schedule has ", words.rank_of_stage.size());
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

std::optional<Layers> layers_of(const Trace& trace, const Schedule& words, const Costs& measured,
                                const std::optional<LayerCosts>& given) {
  const std::string* names = setting(trace, layers_setting);
  const std::string* carried = setting(trace, layer_costs_setting);
  require<ConfigError>(names || !given, "the trace does not say which layers its stages have (no setting '",
                       layers_setting, "'): costs of layers tell nothing about it; leave them out");
  if (!names || (!given && !carried)) return std::nullopt;
  const LayerCosts costs = given ? *given : read_layer_costs(*carried);
  Stages stages = stages_of(read_stage_layers(*names), costs.layers, words);
  LayerCosts fitted = calibrated(costs, {words, stages, measured});
  LayerSums sums(fitted, words.micro_batches);
  return Layers{std::move(fitted), std::move(stages), std::move(sums)};
}

/// The run, and what it would have been with something else.
class Doctor {
 public:
  Doctor(const Doctor&) = delete;
  Doctor& operator=(const Doctor&) = delete;
  Doctor(const Trace& trace, const std::optional<LayerCosts>& given)
      : figures_(account(trace)),
        words_(strip(trace.schedule)),
        links_(links_of(trace.schedule)),
        costs_(measured_costs(trace)),
        layers_(layers_of(trace, words_, costs_, given)),
        between_(figures_.between_steps_ms.value_or(0)) {
    is_training_ = !words_.is_forward_only();
    is_split_ = gradient_words(words_).unsplit < 1;
    if (layers_) {
      costs_ = costs_of(words_, layers_->stages);
      cutter_.emplace(layers_->costs, layers_->sums);
    }
    now_ = run(words_, costs_).makespan;
  }

  Advice advice() {
    Advice advice{.step_ms = now_ + between_, .remedies = {}, .sentence = {}};
    const auto consider = [&](const std::optional<Idea>& idea) {
      if (!idea) return;
      const double saved = advice.step_ms > 0 ? 1 - idea->step_ms / advice.step_ms : 0;
      advice.remedies.push_back({idea->kind, idea->step_ms, saved,
                                 say(idea->claim, " ", percent(saved), " of a step: ", ms(idea->step_ms),
                                     " instead of ", ms(advice.step_ms), idea->ending)});
    };
    if (is_training_) {
      consider(other_schedule());
      consider(fused());
    }
    consider(layers_ ? other_cut() : even_cut());
    consider(instant_messages());
    consider(instant_update());
    consider(punctual_loader());
    std::stable_sort(advice.remedies.begin(), advice.remedies.end(),
                     [](const Remedy& a, const Remedy& b) { return a.saved > b.saved; });
    advice.sentence = advice.remedies.empty() || advice.remedies.front().saved < least_saving
                          ? nothing_found()
                          : say("What would help most: ", advice.remedies.front().sentence, ".");
    return advice;
  }

 private:
  /// A remedy in the making.
  struct Idea {
    RemedyKind kind;
    double step_ms;
    std::string claim;  // what would save
    std::string ending = {};
  };

  Costs costs_of(const Schedule& words, const Stages& stages) const {
    return stage_costs(layers_->sums, words.rank_of_stage, stages);
  }

  /// Skip links are those of the stages, whoever runs them.
  Simulation run(const Schedule& words, const Costs& costs) const {
    if (words.stage_count() != words_.stage_count()) return simulate(words, costs);
    return simulate(words, costs, {.links = links_, .keep_slots = false});
  }

  bool fits(const Schedule& words, const Stages& stages) const {
    if (!layers_->costs.memory_cap_bytes) return true;
    const std::vector<double> bytes = memory_bytes(layers_->sums, words, stages);
    return *std::max_element(bytes.begin(), bytes.end()) <= *layers_->costs.memory_cap_bytes;
  }

  /// `words` with their cut.
  struct Attempt {
    Schedule words;
    Stages stages;  // none where layers are not known
    double makespan = std::numeric_limits<double>::infinity();
    double most_held = 0;  // activations, on the fullest rank

    /// Of equally fast ones, the one that holds less.
    bool is_better_than(const Attempt& other) const {
      if (makespan < other.makespan * (1 - rounding)) return true;
      return makespan <= other.makespan * (1 + rounding) && most_held < other.most_held * (1 - rounding);
    }
  };

  static double most_held(const Simulation& simulation) {
    return *std::max_element(simulation.peak_activations.begin(), simulation.peak_activations.end());
  }

  /// The fastest of the cuts for `words` that fit.
  Attempt with_best_cut(Schedule words) {
    Attempt best{.words = std::move(words), .stages = {}};
    for (const StageCut& cut : cutter_->cuts(best.words)) {
      const double makespan = run(best.words, costs_of(best.words, cut.stages)).makespan;
      if (makespan < best.makespan && fits(best.words, cut.stages)) {
        best.makespan = makespan;
        best.stages = cut.stages;
      }
    }
    return best;
  }

  /// A generator's words in the run's own weight mode; with the run's cut where the stages are as many.
  std::optional<Attempt> attempt_with(const Generator& generator, int chunks) {
    const ScheduleShape shape{words_.rank_count(), words_.micro_batches, chunks};
    const bool has_own_cut = words_.stage_count() == shape.ranks * chunks;
    const auto in_mode = [&](Schedule words) { return has_fused_w(words_) ? fuse_w(words) : words; };
    Costs costs = costs_;
    Attempt attempt{.words = in_mode(generate(generator.name, shape)), .stages = layers_ ? layers_->stages : Stages{}};
    if (!has_own_cut) attempt = with_best_cut(std::move(attempt.words));
    if (layers_ && attempt.stages.empty()) return std::nullopt;
    if (layers_) costs = costs_of(attempt.words, attempt.stages);
    attempt.words = in_mode(generate(generator.name, shape, {.costs = costs, .memory_limit = 1}));
    // Of a B that the run never split, the halves are not known.
    if (!layers_ && !is_split_ && gradient_words(attempt.words).unsplit < 1) return std::nullopt;
    if (attempt.words.orders == words_.orders || (layers_ && !fits(attempt.words, attempt.stages))) return std::nullopt;
    const Simulation simulation = run(attempt.words, costs);
    attempt.makespan = simulation.makespan;
    attempt.most_held = most_held(simulation);
    return attempt;
  }

  std::optional<Idea> other_schedule() {
    const int p = words_.rank_count();
    if (words_.stage_count() % p != 0) return std::nullopt;
    const int own = words_.stage_count() / p;
    std::optional<Attempt> best;
    for (const Generator& generator : generators()) {
      if (generate(generator.name, {p, 1, generator.default_chunks}).is_forward_only()) continue;
      const int most = layers_ ? std::min({most_chunks, generator.max_chunks, layers_->sums.layers() / p}) : own;
      for (int chunks = layers_ ? generator.min_chunks : own; chunks <= most; ++chunks) {
        if (chunks < generator.min_chunks || chunks > generator.max_chunks) continue;
        auto attempt = attempt_with(generator, chunks);
        if (attempt && (!best || attempt->is_better_than(*best))) best = std::move(attempt);
      }
    }
    if (!best) return std::nullopt;
    const int chunks = best->words.stage_count() / p;
    return Idea{RemedyKind::schedule, best->makespan + between_,
                say("schedule '", best->words.name, "'", chunks > 1 ? say(" with ", chunks, " chunks per rank") : "",
                    " in place of '", words_.name, "' would save"),
                more_memory(best->most_held)};
  }

  /// What faster words need besides.
  std::string more_memory(double then) const {
    const double now = most_held(run(words_, costs_));
    if (then <= now * (1 + rounding)) return "";
    return say("; its fullest rank holds ", fixed(then, 2), " micro-batches and not ", fixed(now, 2));
  }

  std::optional<Idea> fused() {
    if (!layers_ || !layers_->sums.has_fused()) return std::nullopt;
    const Schedule words = fuse_w(words_);
    if (words.orders == words_.orders || !fits(words, layers_->stages)) return std::nullopt;
    const Simulation simulation = run(words, costs_);
    return Idea{RemedyKind::fused, simulation.makespan + between_,
                "fused weight gradients (--weight-gradients fused) would save", more_memory(most_held(simulation))};
  }

  /// What a stage takes for one micro-batch, in the words of the run, and its part of the update.
  double weight_of(std::size_t stage) const {
    const auto at = [&](const std::vector<double>& list) { return list[list.size() == 1 ? 0 : stage]; };
    if (layers_) return layers_->sums.work_and_update(layers_->stages[stage], gradient_words(words_));
    return at(costs_.forward) + at(costs_.input_grad) + at(costs_.weight_grad) +
           at(costs_.update) / words_.micro_batches;
  }

  /// "stage 1 is 18.0 % heavier than stage 0"; of ranks, where they have several stages.
  std::string imbalance() const {
    const bool by_stage = words_.stage_count() == words_.rank_count();
    std::vector<double> weights(words_.orders.size(), 0);
    for (std::size_t s = 0; s < words_.rank_of_stage.size(); ++s)
      weights[by_stage ? s : words_.rank_of_stage[s].index()] += weight_of(s);
    const auto [least, most] = std::minmax_element(weights.begin(), weights.end());
    const char* what = by_stage ? "stage " : "rank ";
    return say(what, most - weights.begin(), " is ", *least > 0 ? percent(*most / *least - 1) : "infinitely",
               " heavier than ", what, least - weights.begin());
  }

  std::optional<Idea> other_cut() {
    const Attempt best = with_best_cut(words_);
    if (best.stages.empty() || best.stages == layers_->stages) return std::nullopt;
    std::string moves;
    for (std::size_t s = 0; s + 1 < best.stages.size(); ++s) {
      if (best.stages[s].end == layers_->stages[s].end) continue;
      const auto last_of = [&](const Stages& stages) {
        return layers_->costs.layers[static_cast<std::size_t>(stages[s].end - 1)].name;
      };
      moves += say(moves.empty() ? "" : ", ", "after layer '", last_of(best.stages), "' instead of '",
                   last_of(layers_->stages), "'");
    }
    return Idea{RemedyKind::cut, best.makespan + between_, say(imbalance(), ": to cut ", moves, " would save")};
  }

  std::optional<Idea> even_cut() {
    if (words_.stage_count() == 1) return std::nullopt;
    Costs even = costs_;
    for (std::vector<double>* list : {&even.forward, &even.input_grad, &even.weight_grad, &even.update})
      *list = {std::accumulate(list->begin(), list->end(), 0.0) / static_cast<double>(list->size())};
    return Idea{RemedyKind::even_cut, run(words_, even).makespan + between_,
                say(imbalance(), ": an even cut would save up to"), "; --cut time or --schedule auto comes near it"};
  }

  std::optional<Idea> instant_messages() {
    if (costs_.message <= 0) return std::nullopt;
    Costs instant = costs_;
    instant.message = 0;
    return Idea{RemedyKind::messages, run(words_, instant).makespan + between_,
                say("messages are on their way for ", ms(costs_.message), " each: faster ones would save up to")};
  }

  std::optional<Idea> instant_update() {
    const double most = *std::max_element(costs_.update.begin(), costs_.update.end());
    if (most <= 0) return std::nullopt;
    Costs instant = costs_;
    instant.update = {0};
    return Idea{RemedyKind::update, run(words_, instant).makespan + between_,
                say("the optimiser's step takes up to ", ms(most), ": a faster one would save up to")};
  }

  std::optional<Idea> punctual_loader() {
    if (between_ <= 0) return std::nullopt;
    return Idea{RemedyKind::loader, now_,
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
  Schedule words_;
  Links links_;
  Costs costs_;  // of the run's stages, in ms
  std::optional<Layers> layers_;
  std::optional<StageCutter> cutter_;  // for as many searches as there are placements
  double between_ = 0;
  double now_ = 0;
  bool is_training_ = false;
  bool is_split_ = false;
};

}  // namespace

const char* to_string(RemedyKind kind) {
  switch (kind) {
    case RemedyKind::schedule: return "schedule";
    case RemedyKind::fused: return "fused";
    case RemedyKind::cut: return "cut";
    case RemedyKind::even_cut: return "even_cut";
    case RemedyKind::messages: return "messages";
    case RemedyKind::update: return "update";
    case RemedyKind::loader: return "loader";
  }
  return "";
}

Advice advise(const Trace& trace, const std::optional<LayerCosts>& costs) { return Doctor(trace, costs).advice(); }

}  // namespace penstock
