#include "penstock/autotune/choose.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>

#include "penstock/autotune/measured_options.h"
#include "penstock/autotune/profile.h"
#include "penstock/autotune/sample.h"
#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/model/graph.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/plan/candidate.h"
#include "penstock/plan/cluster.h"
#include "penstock/plan/plan_report.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

constexpr double clearly_longer[] = {2, 1.10, 1.06, 1.03};  // after the first, second, ... round
constexpr std::size_t least_rounds = 5;
constexpr std::size_t most_rounds = 12;
constexpr double whole_ms = 10000;  // of choose_by_profile(), if two candidates can be measured in it
constexpr double long_step_ms = 300;
constexpr double clear_gain = 1.25;                 // of tuned kernels
constexpr double clearly_shorter[] = {0.97, 0.99};  // after one round, and after more
constexpr double disturbed = 1.15;                  // the longest round of a candidate beside its shortest

double lower_quartile(std::vector<double> values) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

/// A candidate's times, one of each round in which it took part. All took part in the first round, and none came back.
using RoundTimes = std::vector<double>;

double shortest(const RoundTimes& times) { return *std::ranges::min_element(times); }

/// Whether other programs disturb the measurements.
bool is_disturbed(const RoundTimes& times) { return *std::ranges::max_element(times) > disturbed * shortest(times); }

/// Whether `one` should leave: its shortest round, and at least half of its rounds beside those of `other`, were longer
/// by a factor that falls with their number. In the first two that is each round.
bool is_clearly_longer(const RoundTimes& one, const RoundTimes& other) {
  const std::size_t rounds = one.size();
  const bool is_early = rounds < least_rounds && is_disturbed(other);
  const double factor = clearly_longer[is_early ? 0 : std::min(rounds, std::size(clearly_longer)) - 1];
  std::vector<double> ratios;
  for (std::size_t round = 0; round < rounds; ++round) ratios.push_back(one[round] / other[round]);
  const auto lower_median = ratios.begin() + static_cast<std::ptrdiff_t>((rounds - 1) / 2);
  std::ranges::nth_element(ratios, lower_median);
  return *lower_median > factor && shortest(one) > factor * shortest(other);
}

/// Where micro_batches is 0: p, 2p, 4p and 8p, as far as the samples of a replica suffice.
std::vector<int> micro_batches_to_try(const PipelineOptions& options, const AutotuneOptions& how, const World& world) {
  if (options.micro_batches > 0) return {options.micro_batches};
  const std::int64_t samples = samples_per_replica(options, how, world.replicas());
  std::vector<int> counts;
  for (int count = world.stages(); count <= 8 * world.stages() && count <= samples; count *= 2) counts.push_back(count);
  if (counts.empty()) counts.push_back(1);
  return counts;
}

/// Throws the planner's error where no schedule meets the constraints whatever the layers cost: before anything is
/// measured.
void require_possible(const World& world, Cell& network, const PipelineOptions& options, PlanConstraints constraints,
                      const std::vector<int>& counts) {
  if (constraints.memory_limit && is_in_bytes(*constraints.memory_limit)) constraints.memory_limit.reset();
  LayerCosts costs;
  costs.time_unit = "ms";
  costs.ranks = world.stages();
  costs.samples = std::int64_t{counts.back()} * world.replicas();
  costs.micro_batches = counts;
  const auto add = [&](const std::string& name, const std::string& block = "") {
    LayerCost& layer = costs.layers.emplace_back();
    layer.name = name;
    layer.block = block;
    layer.forward = layer.input_grad = layer.weight_grad = 1;
  };
  for (const std::vector<std::string>& stage : constraints.stages)
    for (const std::string& name : stage) add(name);
  if (constraints.stages.empty())
    for (const Node& node : trace_graph(network, options.inputs, trace_sample(options)).nodes)
      add(node.name, node.in_block);
  make_plan(costs, constraints);
}

/// The given costs of layers, for one m. Throws ConfigError if they are for another number of ranks.
LayerCosts given_costs(const std::string& text, int micro_batches, int ranks) {
  LayerCosts costs = read_layer_costs(text);
  require<ConfigError>(costs.ranks == ranks, "AutotuneOptions::layer_costs are for ", costs.ranks,
                       " pipeline ranks, and the world has ", ranks, ": pass costs that were measured on as many");
  costs.micro_batches = {micro_batches};
  return costs;
}

/// One m, profiled and planned.
struct Trial {
  LayerCosts costs;
  Planned planned;
  double kernel_gain = 1;
};

/// A finalist of one of several trials; without Plan::kernels it runs with LibTorch's.
struct Entry {
  const Trial* trial = nullptr;
  Finalist finalist;
  std::optional<StageCosts> costs = {};  // with measured bytes, where the memory limit is in bytes
};

/// The finalists of all trials together.
std::vector<Entry> entries_of(const std::vector<Trial>& trials, int most) {
  std::vector<Entry> all;
  for (const Trial& trial : trials)
    for (const Finalist& finalist : trial.planned.finalists) all.push_back({&trial, finalist});
  std::ranges::stable_sort(all, {}, [](const Entry& entry) { return entry.finalist.candidate.prediction.makespan; });
  std::vector<Candidate> candidates;
  for (const Entry& entry : all) candidates.push_back(entry.finalist.candidate);
  std::vector<Entry> chosen;
  for (const std::size_t i : finalists_of(candidates, most, [&](std::size_t k) { return all[k].finalist.plan; }))
    chosen.push_back(all[i]);
  return chosen;
}

/// Measures the activations of each entry and drops the entries that exceed the limit in bytes of their options, which
/// `options_of` gives for a plan. Returns the smallest limit that would do for one of them.
BytesPerRank drop_above_limit(World& world, Cell& network, const Loss& loss, std::vector<Entry>& entries,
                              const AutotuneOptions& how,
                              const std::function<PipelineOptions(const Plan&)>& options_of) {
  std::vector<Entry> kept;
  std::optional<MemoryLimit> least;
  for (Entry& entry : entries) {
    const PipelineOptions options = options_of(entry.finalist.plan);
    const MemoryLimit& limit = options.memory_limit.value();
    entry.costs = measured_bytes(world, network, loss, options, how);
    const MemoryLimit needed = needed_memory_limit(entry.finalist.plan.schedule, limit, *entry.costs);
    if (!least || needed < *least) least = needed;
    if (needed <= limit) kept.push_back(std::move(entry));
  }
  entries = std::move(kept);
  return std::get<BytesPerRank>(least.value());
}

/// Plans all trials again; false, where nothing fits.
bool plan_again(std::vector<Trial>& trials, const PlanConstraints& constraints) {
  try {
    for (Trial& trial : trials) trial.planned = make_plan(trial.costs, constraints);
  } catch (const ScheduleError&) {
    return false;
  }
  return true;
}

/// The finalists of all trials; with a memory limit in bytes, those whose measured activations stay within it, because
/// the planner estimates those of partitions on which layers were not measured. Where all exceed the limit, `trials`
/// are planned again for a limit that is smaller by the excess, at least by 2 %. Throws ScheduleError, which names the
/// smallest limit that would do for what was measured, if that finds none.
std::vector<Entry> fitting_entries(World& world, Cell& network, const Loss& loss, std::vector<Trial>& trials,
                                   PlanConstraints constraints, const AutotuneOptions& how,
                                   const std::function<PipelineOptions(const Plan&)>& options_of) {
  constexpr int most_plans = 4;
  const std::optional<MemoryLimit> limit = constraints.memory_limit;
  std::optional<BytesPerRank> least;
  for (int round = 1;; ++round) {
    std::vector<Entry> entries = entries_of(trials, constraints.finalists);
    if (!limit || !is_in_bytes(*limit)) return entries;
    const BytesPerRank needed = drop_above_limit(world, network, loss, entries, how, options_of);
    if (!entries.empty()) return entries;
    if (!least || needed < *least) least = needed;
    const double planned = static_cast<double>(std::get<BytesPerRank>(*constraints.memory_limit).bytes);
    const double excess =
        std::max(1.02, static_cast<double>(needed.bytes) / static_cast<double>(std::get<BytesPerRank>(*limit).bytes));
    constraints.memory_limit = BytesPerRank{std::max<std::int64_t>(1, static_cast<std::int64_t>(planned / excess))};
    require<ScheduleError>(round < most_plans && plan_again(trials, constraints),
                           "no schedule that was measured stays within a memory limit of ", to_string(*limit),
                           " of activations per rank: the smallest limit that would do is ",
                           to_string(MemoryLimit(*least)));
  }
}

/// Times steps of a candidate in a pipeline of its own, after one that warms its caches unless steps are long.
class StepTimer {
 public:
  StepTimer(World& world, Cell& network, const Loss& loss, const AutotuneOptions& how)
      : world_(world), network_(network), loss_(loss), how_(how) {}

  /// `predicted_ms` is the expected time of a step.
  std::vector<double> operator()(const PipelineOptions& options, double predicted_ms) {
    constexpr double round_ms = 150;
    constexpr double most_steps = 10;
    const int steps = static_cast<int>(std::clamp(std::ceil(round_ms / std::max(predicted_ms, 1e-3)), 1.0, most_steps));
    Pipeline pipeline(world_, network_, loss_, options);
    pipeline.optimize_with(optimizer_or_sgd(how_.profile.optimizer));
    std::vector<double> times;
    for (int step = predicted_ms < long_step_ms ? -1 : 0; step < steps; ++step) {
      const std::int64_t begin = now_ns();
      pipeline.train_step(how_.sample, how_.sample_targets).wait();
      if (step >= 0) times.push_back(ms_since(begin));
    }
    return times;
  }

 private:
  World& world_;
  Cell& network_;
  const Loss& loss_;
  const AutotuneOptions& how_;
};

/// The candidates of the winner's trial, with the winner as their plan.
Planned planned_with(const Entry& winner) {
  Planned planned = winner.trial->planned;
  planned.plan = winner.finalist.plan;
  const Candidate& chosen = winner.finalist.candidate;
  const auto found = std::ranges::find_if(planned.candidates, [&](const Candidate& other) {
    return describe(other) == describe(chosen) && other.prediction == chosen.prediction;
  });
  require<InternalError>(found != planned.candidates.end(), "the chosen ", describe(chosen), " is not a candidate");
  std::rotate(planned.candidates.begin(), found, found + 1);
  return planned;
}

}  // namespace

StepComparison compare_steps(World& world, std::size_t count, const ComparisonOptions& how,
                             const std::function<std::vector<double>(std::size_t)>& measure) {
  std::vector<RoundTimes> times(count);
  std::vector<std::size_t> left(count);
  std::iota(left.begin(), left.end(), std::size_t{0});
  const std::int64_t begin = now_ns();
  const auto spent_ms = [&] { return of_rank_0(world, {ms_since(begin)}).front(); };
  const auto fits_once_more = [&](double spent, std::size_t times_done) {
    return spent + spent / static_cast<double>(times_done) <= how.most_ms;
  };
  for (std::size_t round = 0; round < most_rounds && left.size() > 1; ++round) {
    for (std::size_t i = 0; i < left.size(); ++i) {
      const std::size_t candidate = round % 2 == 0 ? left[i] : left[left.size() - 1 - i];
      const std::vector<double> measured = of_rank_0(world, measure(candidate));
      require<InternalError>(!measured.empty(), "no step of a candidate was measured");
      times[candidate].push_back(lower_quartile(measured));
      if (round == 0 && i > 0 && !fits_once_more(spent_ms(), i + 1)) left.resize(i + 1);
    }
    const std::size_t best =
        *std::ranges::min_element(left, {}, [&](std::size_t candidate) { return shortest(times[candidate]); });
    std::erase_if(left, [&](std::size_t candidate) { return is_clearly_longer(times[candidate], times[best]); });
    const double spent = spent_ms();
    if (spent > how.budget_ms && round + 1 >= least_rounds) break;
    if (!fits_once_more(spent, round + 1)) break;
  }
  StepComparison comparison{left.front(), {}};
  const double shorter = clearly_shorter[times[left.front()].size() > 1 ? 1 : 0];
  for (const std::size_t candidate : left)
    if (left.size() > 1 && shortest(times[candidate]) < shorter * shortest(times[comparison.best]))
      comparison.best = candidate;
  for (const RoundTimes& of_candidate : times)
    comparison.step_ms.push_back(of_candidate.empty() ? 0 : shortest(of_candidate));
  return comparison;
}

PlanConstraints constraints_of(const World& world, Cell& network, const PipelineOptions& options,
                               const std::string& cluster) {
  PlanConstraints constraints;
  constraints.weight_gradients = options.weight_gradients;
  if (options.chunks > 0) constraints.chunks = options.chunks;
  constraints.memory_limit = options.memory_limit;
  constraints.stages = annotated_stages(network, options, world.stages());
  if (cluster.empty()) return constraints;
  constraints.cluster = read_cluster(cluster);
  listed_placement(*constraints.cluster, {world.stages(), world.replicas()});
  constraints.ranks = {world.stages()};
  constraints.replicas = {world.replicas()};
  constraints.keeps_order = true;
  return constraints;
}

PipelineOptions decided_options(PipelineOptions options, std::string partition, const Plan& plan) {
  options.micro_batches = plan.schedule.micro_batches;
  options.schedule.clear();
  options.custom = plan.schedule;
  options.chunks = 0;
  options.weight_gradients = WeightGradients::stream;  // the instructions are fused already where they should be
  options.kernel_selection = plan.kernels;
  if (plan.kernels.empty()) options.kernels = Kernels::fixed;
  options.partition = std::move(partition);
  return options;
}

AutoChoice choose_by_profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& given,
                             const AutotuneOptions& how) {
  const std::int64_t begin = now_ns();
  const PipelineOptions options = with_example_inputs(given, how.sample);
  PlanConstraints constraints = constraints_of(world, network, options, how.cluster);
  const bool is_annotated = !constraints.stages.empty();
  require<ConfigError>(is_annotated || options.partition == "parameters" || options.partition == "time",
                       "schedule 'auto' chooses the partition too, but it is given as '", options.partition,
                       "': leave it out, annotate the layers with stages, or name a schedule");
  AutotuneOptions profiling = how;
  profiling.profile.slowdown_under_load = false;
  std::vector<Trial> trials;
  const std::vector<int> counts = micro_batches_to_try(options, how, world);
  profiling.profile.passes_ms /= static_cast<double>(counts.size());
  // Whether bytes suffice is not known before layers are measured.
  const bool is_limited = constraints.memory_limit && !is_in_bytes(*constraints.memory_limit);
  if (constraints.chunks || is_limited) require_possible(world, network, options, constraints, counts);
  constraints.finalists = std::max(1, how.comparison.finalists);
  for (const int count : counts) {
    PipelineOptions counted = options;
    counted.micro_batches = count;
    Profiled profiled = how.layer_costs.empty() ? profiled_layers(world, network, loss, counted, profiling)
                                                : Profiled{given_costs(how.layer_costs, count, world.stages())};
    Planned planned = make_plan(profiled.costs, constraints);
    trials.push_back({std::move(profiled.costs), std::move(planned), profiled.kernel_gain});
  }

  const auto partition_for = [&](const Plan& plan) { return is_annotated ? options.partition : partition_of(plan); };
  const auto options_for = [&](const Plan& plan) { return decided_options(options, partition_for(plan), plan); };
  std::vector<Entry> entries = fitting_entries(world, network, loss, trials, constraints, how, options_for);
  // On some processors LibTorch's kernels are faster in a whole step than those that are a little faster one by one.
  if (how.comparison.finalists > 1 && options.kernel_selection.empty() &&
      !entries.front().finalist.plan.kernels.empty() && entries.front().trial->kernel_gain < clear_gain) {
    entries.insert(entries.begin() + 1, entries.front());
    entries[1].finalist.plan.kernels.clear();
  }
  StepComparison comparison;
  if (entries.size() > 1) {
    StepTimer time_steps(world, network, loss, how);
    ComparisonOptions limits = how.comparison;
    limits.most_ms = std::min(limits.most_ms, whole_ms - of_rank_0(world, {ms_since(begin)}).front());
    comparison = compare_steps(world, entries.size(), limits, [&](std::size_t i) {
      const Plan& plan = entries[i].finalist.plan;
      PipelineOptions timed = options_for(plan);
      timed.update_every = 1;
      if (entries[i].costs) timed.costs = entries[i].costs;
      return time_steps(timed, plan.prediction.makespan);
    });
  }
  const Entry& winner = entries[comparison.best];
  const Plan& plan = winner.finalist.plan;
  AutoChoice choice{
      .options = options_for(plan), .plan = plan, .costs = winner.trial->costs, .planned = planned_with(winner)};
  if (winner.costs) choice.options.costs = winner.costs;
  for (std::size_t i = 0; i < comparison.step_ms.size(); ++i) {
    if (comparison.step_ms[i] == 0) continue;
    auto& compared = choice.planned->compared;
    compared.insert(i == comparison.best ? compared.begin() : compared.end(),
                    {entries[i].finalist.candidate, comparison.step_ms[i],
                     entries[i].finalist.plan.kernels != entries[i].trial->planned.plan.kernels});
  }
  return choice;
}

}  // namespace penstock
