#include "penstock/plan/planner.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/plan/candidates.h"
#include "penstock/plan/require_fitting.h"
#include "penstock/plan/settings.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

/// make_plan(). Without `says_what_fits`, an error does not name the change with which a candidate would fit.
Planned make_plan_or_throw(const LayerCosts& costs, const PlanConstraints& wanted, bool says_what_fits);

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

constexpr std::string_view several_copies = "has several copies of each stage, which a pipeline does not execute";

std::vector<const ScheduleGenerator*> generators_of(const PlanConstraints& constraints) {
  std::vector<const ScheduleGenerator*> chosen;
  for (const std::string& name : constraints.schedules) {
    const ScheduleGenerator& generator = find_generator(name);
    require<ConfigError>(generator.single_owner, "schedule '", name, "' ", several_copies,
                         ": a plan is for training; take another schedule");
    require<ConfigError>(trains(generator), "schedule '", name, "' only goes forward: a plan is for training");
    chosen.push_back(&generator);
  }
  if (constraints.schedules.empty() && constraints.own_schedules.empty())
    for (const ScheduleGenerator& generator : generators())
      if (trains(generator)) chosen.push_back(&generator);
  return chosen;
}

/// Why partitions cut blocks; empty if they do not.
std::string shown_remark(const LayerCosts& costs, const PlanConstraints& constraints) {
  if (!constraints.stages.empty() || constraints.cluster) return "";
  return remark_on_blocks(blocks_of(costs), costs.ranks * constraints.chunks.value_or(1));
}

/// "15 layers", "12 blocks and layers between them".
std::string shown_layers(const LayerCosts& costs, const PlanConstraints& constraints) {
  const std::vector<std::string> blocks = blocks_of(costs);
  const bool has_units = shown_remark(costs, constraints).empty() && count_units(blocks) < std::ssize(blocks);
  return has_units ? say(count_units(blocks), " blocks and layers between them") : say(blocks.size(), " layers");
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
  require<ConfigError>(
      constraints.stages.empty() || constraints.keeps_order || (!constraints.cluster && constraints.ranks.empty()),
      "the stages are given, and other numbers of ranks or devices are to be tried: leave out one");
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

/// The schedules of the user without messages. Throws ScheduleError for one that cannot run, ConfigError for one that
/// no plan can have.
std::vector<Schedule> own_schedules(const PlanConstraints& constraints, const LayerCosts& costs) {
  std::vector<Schedule> own;
  for (const Schedule& schedule : constraints.own_schedules) {
    validate(schedule).require_ok(schedule);
    own.push_back(strip(schedule));
    if (own.back().name.empty()) own.back().name = say("own-", own.size());
    const std::string& name = own.back().name;
    for (const Order& order : own.back().orders)
      for (const Instruction& instruction : order)
        require<ConfigError>(!instruction.is_fused(), "schedule '", name, "' has ", to_string(instruction),
                             ": the planner takes schedules with a W for each micro-batch");
    require<ConfigError>(schedule.pipeline_count() == 1, "schedule '", name, "' ", several_copies);
    const int ranks = schedule.rank_count(), stages = schedule.stage_count();
    require<ConfigError>(stages % ranks == 0 && stages <= std::ssize(costs.layers) && !schedule.is_forward_only(),
                         "schedule '", name, "' has ", stages, " stages on ", counted(ranks, "rank"), " for ",
                         costs.layers.size(), " layers: a plan needs the same number of stages on each rank, backward ",
                         "passes, and a layer for each stage");
  }
  return own;
}

Plan plan_of(const LayerCosts& costs, const PlanConstraints& constraints, const Outcome& outcome) {
  const PlanSetting& setting = *outcome.setting;
  Plan plan{.costs = fingerprint(costs),
            .time_unit = costs.time_unit,
            .weight_gradients = outcome.candidate.weight_gradients,
            .kernels = costs.kernels,
            .stages = {},
            .replicas = setting.replicas,
            .recompute = outcome.candidate.recomputed,
            .prediction = outcome.candidate.prediction,
            .schedule = Candidates(outcome.setting, constraints).schedule_of(outcome)};
  plan.devices = outcome.candidate.devices;
  for (const LayerRange& stage : outcome.stages) {
    plan.stages.emplace_back();
    for (int layer = stage.begin; layer < stage.end; ++layer)
      plan.stages.back().push_back(costs.layers[static_cast<std::size_t>(layer)].name);
  }
  return plan;
}

/// What is known of the plan as an outcome of the planner.
Outcome outcome_of(const Plan& plan, const LayerCosts& costs) {
  return {.candidate = {},
          .attempt = {},
          .stages = ranges_of(plan.stages, costs),
          .recomputed = recomputed_of(costs, plan.recompute)};
}

/// Tries candidates, as many as time permits.
class PlanSearch {
 public:
  /// All must outlive the search, and `own` its outcomes.
  PlanSearch(const LayerCosts& costs, const PlanConstraints& constraints, const std::vector<Schedule>& own,
             Planned& planned)
      : costs_(costs),
        constraints_(constraints),
        planned_(planned),
        generators_(generators_of(constraints)),
        own_(own) {
    if (constraints.weight_gradients != WeightGradients::automatic) modes_ = {constraints.weight_gradients};
    for (auto& setting : settings_of(costs, constraints)) settings_.push_back({std::move(setting), nullptr, {}});
    for (const Schedule& schedule : own_) require_setting_for(schedule);
  }

  std::vector<Outcome> run() {
    say_too_few();
    const bool is_wide = constraints_.cluster && settings_.size() > 1;
    if (is_wide) try_first();
    for (InSetting& in : settings_) {
      if (is_wide && best_ && in.candidates->least_step() >= *best_) {
        ++hopeless_;
        continue;
      }
      for (const ScheduleGenerator* generator : generators_) try_all(in, *generator, is_wide);
      try_own(in);
      if (is_over()) break;
    }
    if (constraints_.stages.empty()) improve();
    if (hopeless_ > 0)
      planned_.left_out.push_back(say("other schedules with ", counted(hopeless_, "choice"),
                                      " of ranks, devices and micro-batches: even with perfect balance they take "
                                      "longer than the chosen one"));
    if (was_stopped_)
      planned_.left_out.push_back(say("more candidates: the time limit of ", constraints_.time_limit_s.value_or(0),
                                      " s was reached after ", outcomes_.size()));
    return std::move(outcomes_);
  }

 private:
  struct InSetting {
    std::shared_ptr<const PlanSetting> setting;
    std::unique_ptr<Candidates> candidates;
    std::optional<double> first_step;  // of the 1F1B that was tried first
  };

  static constexpr std::string_view first_schedule = "1f1b";
  static constexpr std::size_t improved_outcomes = 3;
  // Simulated for each of them:
  static constexpr std::int64_t most_steps = 400;
  static constexpr std::int64_t most_instructions = 2'000'000;

  Candidates& candidates_of(InSetting& in) {
    if (!in.candidates) in.candidates = std::make_unique<Candidates>(in.setting, constraints_);
    return *in.candidates;
  }

  bool is_over() {
    if (constraints_.time_limit_s && s_since(begin_) > *constraints_.time_limit_s && !outcomes_.empty())
      was_stopped_ = true;
    return was_stopped_;
  }

  void add(InSetting& in, const Base& base, const std::vector<WeightGradients>& modes) {
    const std::size_t known = outcomes_.size();
    candidates_of(in).run(base.attempt, base.instructions, modes, outcomes_);
    for (std::size_t i = known; i < outcomes_.size(); ++i) {
      const Candidate& candidate = outcomes_[i].candidate;
      if (candidate.fits && (!best_ || candidate.prediction.makespan < *best_)) best_ = candidate.prediction.makespan;
    }
    if (constraints_.progress) constraints_.progress({outcomes_.size(), best_, s_since(begin_)});
  }

  /// 1F1B in every setting, and the best settings first.
  void try_first() {
    const auto generator = std::ranges::find(generators_, first_schedule, [](const auto* one) { return one->name; });
    for (InSetting& in : settings_) {
      Candidates& candidates = candidates_of(in);
      if (generator == generators_.end() || is_over()) continue;
      const std::size_t known = outcomes_.size();
      const ChunkRange chunks = chunks_to_try(**generator, in.setting->costs, constraints_);
      if (chunks.least > chunks.most) continue;
      if (best_ && candidates.least_step() >= *best_) continue;
      const ScheduleShape shape{in.setting->costs.ranks, in.setting->micro_batches, chunks.least};
      add(in, bases_of(**generator, shape, in.setting->costs, constraints_).front(), {modes_.front()});
      for (std::size_t i = known; i < outcomes_.size(); ++i)
        if (outcomes_[i].candidate.fits) in.first_step = outcomes_[i].candidate.prediction.makespan;
    }
    std::ranges::stable_sort(settings_, {}, [](const InSetting& in) {
      return in.first_step.value_or(std::numeric_limits<double>::infinity());
    });
  }

  void try_all(InSetting& in, const ScheduleGenerator& generator, bool has_first) {
    const PlanSetting& setting = *in.setting;
    const ChunkRange chunks = chunks_to_try(generator, setting.costs, constraints_);
    for (int v = chunks.least; v <= chunks.most; ++v) {
      if (is_over()) return;
      const ScheduleShape shape{.ranks = setting.costs.ranks, .micro_batches = setting.micro_batches, .chunks = v};
      for (const Base& base : bases_of(generator, shape, setting.costs, constraints_)) {
        if (is_over()) return;
        std::vector<WeightGradients> modes = modes_;
        if (has_first && in.first_step && generator.name == first_schedule) modes.erase(modes.begin());
        if (!modes.empty()) add(in, base, modes);
      }
    }
  }

  static bool is_for(const Schedule& schedule, const InSetting& in) {
    return schedule.rank_count() == in.setting->costs.ranks && schedule.micro_batches == in.setting->micro_batches;
  }

  void require_setting_for(const Schedule& schedule) const {
    require<ConfigError>(std::ranges::any_of(settings_, [&](const InSetting& in) { return is_for(schedule, in); }),
                         "schedule '", schedule.name, "' has ", counted(schedule.rank_count(), "rank"), " and ",
                         counted(schedule.micro_batches, "micro-batch"), ", and the plan tries others: plan for these");
  }

  void try_own(InSetting& in) {
    for (const Schedule& schedule : own_) {
      if (!is_for(schedule, in)) continue;
      const ScheduleShape shape{schedule.rank_count(), schedule.micro_batches,
                                schedule.stage_count() / schedule.rank_count()};
      add(in, {{.shape = shape, .own = &schedule}, schedule}, {WeightGradients::stream});
    }
  }

  void improve() {
    put_in_order(outcomes_);
    const std::size_t count = std::min(improved_outcomes, outcomes_.size());
    for (std::size_t i = 0; i < count; ++i) {
      if (!outcomes_[i].candidate.fits || is_over()) break;
      const ScheduleShape& shape = outcomes_[i].attempt.shape;
      const std::int64_t instructions = std::int64_t{3} * shape.ranks * shape.chunks * shape.micro_batches;
      const auto steps = static_cast<int>(std::min(most_steps, most_instructions / instructions));
      Outcome better = Candidates(outcomes_[i].setting, constraints_).improved(outcomes_[i], steps);
      if (better.candidate.partition == PartitionKind::improved) outcomes_[i] = std::move(better);
    }
  }

  /// Notes which numbers of chunks need more layers.
  void say_too_few() {
    if (settings_.size() != 1 && constraints_.cluster) return;
    for (const ScheduleGenerator* generator : generators_) {
      const LayerCosts& costs = settings_.front().setting->costs;
      const int most = chunks_to_try(*generator, costs, constraints_).most;
      if (most < std::min(generator->max_chunks, constraints_.chunks.value_or(most_chunks)))
        planned_.left_out.push_back(say(generator->name, " with ", std::max(most + 1, generator->min_chunks),
                                        " or more chunks per rank: ", shown_layers(costs, constraints_),
                                        " are too few"));
    }
  }

  const LayerCosts& costs_;
  const PlanConstraints& constraints_;
  Planned& planned_;
  std::vector<const ScheduleGenerator*> generators_;
  const std::vector<Schedule>& own_;
  std::vector<WeightGradients> modes_ = {WeightGradients::stream, WeightGradients::fused};
  std::vector<InSetting> settings_;
  std::vector<Outcome> outcomes_;
  std::optional<double> best_;
  std::int64_t begin_ = now_ns();
  int hopeless_ = 0;
  bool was_stopped_ = false;
};

Planned make_plan_or_throw(const LayerCosts& costs, const PlanConstraints& wanted, bool says_what_fits) {
  fingerprint(costs);  // throws for costs out of range
  const PlanConstraints constraints = completed(wanted, costs);
  Planned planned;
  for (const LayerCost& layer : costs.layers)
    if (!layer.block.empty()) planned.block_of_layer[layer.name] = layer.block;
  const std::string remark = shown_remark(costs, constraints);
  if (!remark.empty()) planned.left_out.push_back("partitions that cut no block: " + remark);
  for (const ScheduleGenerator& generator : generators())
    if (!generator.single_owner && constraints.schedules.empty() && constraints.own_schedules.empty())
      planned.left_out.push_back(say(generator.name, " ", several_copies));
  const std::vector<Schedule> own = own_schedules(constraints, costs);
  std::vector<Outcome> outcomes = PlanSearch(costs, constraints, own, planned).run();
  require<ScheduleError>(!outcomes.empty(), "nothing can be tried: ", shown_layers(costs, constraints),
                         " do not make a stage for each of ",
                         constraints.ranks.empty() ? costs.ranks : std::ranges::min(constraints.ranks),
                         " ranks and their ",
                         constraints.chunks ? say(*constraints.chunks, " chunks; use fewer ranks or other chunks")
                                            : "chunks; use fewer ranks");
  put_in_order(outcomes);
  require_fitting(costs, constraints, outcomes, [&](const PlanConstraints& others) -> std::optional<Candidate> {
    if (!says_what_fits) return std::nullopt;
    return make_plan_or_throw(costs, others, /*says_what_fits=*/false).candidates.front();
  });
  planned.slowdown_under_load = costs.slowdown_under_load;
  planned.has_memory_cap = costs.memory_cap_bytes.has_value() || constraints.cluster.has_value();
  for (Outcome& outcome : outcomes) {
    Candidate& candidate = outcome.candidate;
    for (const LayerRange& stage : outcome.stages)
      candidate.stages.push_back(costs.layers[static_cast<std::size_t>(stage.begin)].name);
    for (const std::vector<Device>& replicas : outcome.setting->placement)
      for (const Device& device : replicas) candidate.devices.push_back(constraints.cluster->name_of(device));
    planned.candidates.push_back(candidate);
  }
  planned.spread = costs.spread;
  const auto simplest = static_cast<std::ptrdiff_t>(simplest_within(planned.candidates, costs.spread));
  planned.is_simplest = simplest > 0;
  std::rotate(outcomes.begin(), outcomes.begin() + simplest, outcomes.begin() + simplest + 1);
  std::rotate(planned.candidates.begin(), planned.candidates.begin() + simplest,
              planned.candidates.begin() + simplest + 1);
  const auto plan_number = [&](std::size_t index) { return plan_of(costs, constraints, outcomes[index]); };
  planned.plan = plan_number(0);
  for (const std::size_t i : finalists_of(planned.candidates, constraints.finalists, plan_number))
    planned.finalists.push_back({planned.candidates[i], plan_number(i)});
  return planned;
}

}  // namespace

Planned make_plan(const LayerCosts& costs, const PlanConstraints& constraints) {
  return make_plan_or_throw(costs, constraints, /*says_what_fits=*/true);
}

Prediction predict(const Plan& plan, const LayerCosts& costs, const PlanConstraints& constraints) {
  const PlanSetting setting = setting_of(plan, costs, constraints);
  const Outcome outcome = outcome_of(plan, costs);
  const LayerSums sums(with_recompute(setting.costs, outcome.recomputed), setting.micro_batches, setting.site);
  Prediction prediction;
  report_time(simulate(plan.schedule, stage_costs_of(plan, costs, constraints)), prediction);
  prediction.memory_bytes = rank_bytes(setting, sums, plan.schedule, outcome);
  return prediction;
}

StageCosts stage_costs_of(const Plan& plan, const LayerCosts& costs, const PlanConstraints& constraints) {
  const PlanSetting setting = setting_of(plan, costs, constraints);
  const Outcome outcome = outcome_of(plan, costs);
  const LayerSums sums(with_recompute(setting.costs, outcome.recomputed), setting.micro_batches, setting.site);
  StageCosts stages = stage_costs(sums, plan.schedule.rank_of_stage, outcome.stages);
  stages.reduce_overlaps = constraints.overlaps_reduction;
  return stages;
}

}  // namespace penstock
