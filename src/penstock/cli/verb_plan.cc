#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <memory>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/cli/plan_output.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/value_flags.h"
#include "penstock/cli/verbs.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/plan.h"
#include "penstock/schedule/schedule.h"

namespace penstock::cli {
namespace {

/// The layers of each rank for layers of equal cost: `penstock plan --layers N --stages P --chunks V`.
struct UniformPlan {
  int layers = 0;  // N
  int ranks = 0;   // P
  int chunks = 1;  // V, stages per rank, placed as in the schedule `interleaved`
};

constexpr int most_layers = 1'000'000;

constexpr double usual_time_limit_s = 7;

/// Says every two seconds on standard error how far the search is.
std::function<void(const PlanProgress&)> say_progress() {
  return [next = 2.0](const PlanProgress& progress) mutable {
    if (progress.seconds < next) return;
    next = progress.seconds + 2;
    std::cerr << say("plan: ", progress.tried, " candidates in ", fixed(progress.seconds, 0), " s, ",
                     progress.best ? say("the shortest step ", fixed(*progress.best, 3)) : "none fits so far", "\n");
  };
}

struct RankLayers {
  std::vector<int> stages;  // from 0
  std::vector<int> layers;  // from 0
};

std::vector<RankLayers> layers_of_ranks(const UniformPlan& plan) {
  for (const auto& [flag, number] :
       {std::pair("--layers", plan.layers), std::pair("--stages", plan.ranks), std::pair("--chunks", plan.chunks)})
    require<ConfigError>(number >= 1 && number <= most_layers, flag, " ", number, ": pass 1 to ", most_layers);
  const std::int64_t stages = std::int64_t{plan.ranks} * plan.chunks;
  require<ConfigError>(stages <= plan.layers, "--layers ", plan.layers, " are fewer than the ", stages, " stages of ",
                       plan.ranks, " ranks with ", plan.chunks, " chunks each: pass more layers, or fewer stages");
  const Schedule schedule = generate(plan.chunks == 1 ? "1f1b" : "interleaved", {plan.ranks, 1, plan.chunks});
  const std::vector<LayerSize> layers(static_cast<std::size_t>(plan.layers));
  const Partition partition = partition_uniformly(layers, static_cast<int>(stages));
  std::vector<RankLayers> ranks(static_cast<std::size_t>(plan.ranks));
  for (int stage = 0; stage < static_cast<int>(stages); ++stage)
    ranks[schedule.rank_of(StageId(stage)).index()].stages.push_back(stage);
  for (std::size_t layer = 0; layer < partition.size(); ++layer)
    ranks[schedule.rank_of(partition[layer]).index()].layers.push_back(static_cast<int>(layer));
  return ranks;
}

/// One line per rank: its stages and its layers in a uniform partition. Throws ConfigError for numbers below 1 and for
/// fewer layers than stages.
std::string uniform_plan_text(const UniformPlan& plan) {
  const std::vector<RankLayers> ranks = layers_of_ranks(plan);
  std::string text =
      say("uniform partition of ", plan.layers, " layers (0 to ", plan.layers - 1, ") into ", plan.ranks * plan.chunks,
          " stages: ", plan.ranks, " ranks with ", plan.chunks, plan.chunks == 1 ? " chunk each\n" : " chunks each\n");
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    text += say("rank ", rank, ": layers ", listed(ranks[rank].layers), "; stages ", listed(ranks[rank].stages), "\n");
  return text;
}

/// The same as JSON.
std::string uniform_plan_json(const UniformPlan& plan) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankLayers& rank : layers_of_ranks(plan))
    ranks.push_back({{"rank", ranks.size()}, {"stages", rank.stages}, {"layers", rank.layers}});
  const nlohmann::ordered_json document = {
      {"partition", "uniform"}, {"layers", plan.layers}, {"chunks", plan.chunks}, {"ranks", ranks}};
  return json_text(document, 2) + "\n";
}

struct PlanArguments {
  std::string costs;
  std::optional<int> layers;
  std::optional<int> chunks;
  std::vector<int> ranks;
  std::string cluster;
  std::vector<int> replicas;
  std::string devices;  // numbers of devices to compare
  bool recompute = false;
  bool overlaps_reduction = false;
  bool shards_optimizer = false;
  std::optional<double> time_limit;
  std::vector<int> micro_batches;
  std::optional<double> memory_cap;
  std::optional<MemoryLimit> memory_limit;
  std::vector<std::string> schedules;  // names and files
  bool for_torch = false;
  WeightGradients weight_gradients = WeightGradients::automatic;
  PlanOutput shown;

  void add_to(CLI::App& verb) {
    verb.add_option("--costs", costs, "costs of the layers and the machine: docs/cost_file.md")->type_name("FILE");
    CLI::Option* uniform =
        verb.add_option("--layers", layers, "without costs: this number of layers, partitioned uniformly")
            ->type_name("N")
            ->check(CLI::PositiveNumber);
    verb.add_option("--ranks,--stages", ranks, "the p's to try, pipeline ranks; overrides the file's")
        ->type_name("P[,P...]")
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    verb.add_option("--cluster", cluster, "devices and links, on which p, replicas and devices are chosen as well")
        ->type_name("FILE");
    verb.add_option("--replicas", replicas, "with --cluster: the d's to try; by default all that fit")
        ->type_name("D[,D...]")
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    verb.add_option("--devices", devices, "with --cluster: a plan for each power of two of its first N devices")
        ->type_name("N..N");
    verb.add_flag("--recompute", recompute, "blocks may be recomputed where memory is short");
    verb.add_flag("--overlap-reduction", overlaps_reduction, "replicas sum gradients while their ranks compute");
    verb.add_flag("--shard-optimizer", shards_optimizer,
                  "each replica has its share of the optimiser's state (ZeRO-1)");
    verb.add_option("--time-limit", time_limit, "end the search, with the best plan so far (default: 7 with --cluster)")
        ->type_name("SECONDS")
        ->check(CLI::PositiveNumber);
    verb.add_option("--chunks", chunks, "with --layers: v, stages per rank (default: 1)")
        ->type_name("V")
        ->check(CLI::PositiveNumber)
        ->needs(uniform);
    verb.add_option("--micro-batches", micro_batches, "the m's to try; overrides the file's")
        ->type_name("M[,M...]")
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    const auto assign_cap = [this](const std::string& text) {
      const auto plain = number_of<double>(text);
      const auto bytes = parse_bytes(text);
      require<ConfigError>(bytes || (plain && *plain >= 0 && std::isfinite(*plain)), "--memory-cap ", text,
                           ": pass bytes of at least 0, as 80GB or 8e10, with the units ", byte_unit_names);
      memory_cap = bytes ? static_cast<double>(*bytes) : std::floor(*plain);
    };
    verb.add_option_function<std::string>("--memory-cap", assign_cap,
                                          "limit per rank, with parameters, as 80GB or 8e10; overrides the file's")
        ->type_name("BYTES");
    add_memory_limit(verb, memory_limit, "; schedules above it do not fit");
    const auto assign_schedules = [this](const std::string& text) {
      for (const std::string_view name : listed_items(text))
        if (std::ranges::find(schedules, name) == schedules.end()) schedules.emplace_back(name);
    };
    verb.add_option_function<std::string>("--schedules", assign_schedules,
                                          "the schedules to try, by name or .sched or CSV file; by default all that "
                                          "train")
        ->type_name("NAME|FILE[,...]");
    const auto assign_target = [this](const std::string&) { for_torch = true; };
    verb.add_option_function<std::string>(
            "--for", assign_target,
            "torch: only what torch.distributed.pipelining executes, which has no W of several micro-batches")
        ->check(CLI::IsMember({"torch"}))
        ->type_name("SYSTEM");
    add_weight_gradients(verb, weight_gradients,
                         "stream (a W per micro-batch), fused (one for the step) or auto (both are tried)")
        ->type_name("MODE")
        ->default_str(to_string(weight_gradients));
    shown.add_to(verb);
    for (const char* flag : {"--costs", "--micro-batches", "--memory-cap", "--memory-limit", "--schedules", "--for",
                             "--all", "--output", "--cluster", "--replicas", "--devices", "--recompute",
                             "--overlap-reduction", "--shard-optimizer", "--time-limit"})
      uniform->excludes(verb.get_option(flag));
  }

  UniformPlan uniform() const {
    require<ConfigError>(ranks.size() == 1, "--layers ", *layers, " on how many ranks? Pass --stages P");
    return {*layers, ranks.front(), chunks.value_or(1)};
  }

  LayerCosts layer_costs() const {
    LayerCosts read = read_file(costs, read_layer_costs);
    const std::int64_t most = std::min(read.samples, most_micro_batches);
    for (const int m : micro_batches)
      require<ConfigError>(m <= most, "--micro-batches ", m, ": a step of ", counted(read.samples, "sample"),
                           " has at most ", most, " micro-batches; pass fewer, or raise samples in ", costs);
    if (!micro_batches.empty()) read.micro_batches = micro_batches;
    if (memory_cap) read.memory_cap_bytes = *memory_cap;
    return read;
  }

  PlanConstraints constraints() const {
    for (const auto& [flag, is_given] : {std::pair("--replicas", !replicas.empty()),
                                         {"--devices", !devices.empty()},
                                         {"--overlap-reduction", overlaps_reduction},
                                         {"--shard-optimizer", shards_optimizer}})
      require<ConfigError>(!is_given || !cluster.empty(), flag, " without --cluster: pass the cluster's file");
    require<ConfigError>(!for_torch || weight_gradients != WeightGradients::fused,
                         "--for torch with --weight-gradients fused: torch has no fused W; pass stream");
    PlanConstraints constraints{.weight_gradients = for_torch ? WeightGradients::stream : weight_gradients,
                                .memory_limit = memory_limit,
                                .ranks = ranks,
                                .replicas = replicas,
                                .recompute = recompute,
                                .overlaps_reduction = overlaps_reduction,
                                .shards_optimizer = shards_optimizer,
                                .time_limit_s = time_limit,
                                .progress = say_progress()};
    for (const std::string& name : schedules)
      if (is_schedule_file(name))
        constraints.own_schedules.push_back(load_schedule(name));
      else
        constraints.schedules.push_back(name);
    if (cluster.empty()) return constraints;
    constraints.cluster = read_file(cluster, read_cluster);
    if (!time_limit) constraints.time_limit_s = usual_time_limit_s;
    return constraints;
  }
};

/// "8..512": 8, 16, 32, ..., 512.
std::vector<int> device_counts(const std::string& range) {
  const std::size_t dots = range.find("..");
  const auto first = number_of<int>(std::string_view(range).substr(0, dots));
  const auto last = dots == std::string::npos ? first : number_of<int>(std::string_view(range).substr(dots + 2));
  require<ConfigError>(first && last && *first >= 1 && *first <= *last && *last <= most_layers, "--devices ", range,
                       ": pass a number, or a range such as 8..512");
  std::vector<int> counts;
  for (int count = *first; count <= *last; count *= 2) counts.push_back(count);
  return counts;
}

void plan_as(const PlanArguments& wanted) {
  wanted.shown.check();
  if (wanted.layers) {
    // If JSON goes to standard output, text must not.
    (wanted.shown.json == "-" ? std::cerr : std::cout) << uniform_plan_text(wanted.uniform());
    if (!wanted.shown.json.empty()) write_text(wanted.shown.json, uniform_plan_json(wanted.uniform()));
    return;
  }
  require<ConfigError>(!wanted.costs.empty(), "plan for what? Give --costs FILE, or --layers N --stages P to ",
                       "partition layers uniformly, or --profile to measure a network");
  const PlanConstraints constraints = wanted.constraints();
  if (wanted.devices.empty()) {
    wanted.shown.write(make_plan(wanted.layer_costs(), constraints));
    return;
  }
  std::cout << to_table(scaling_curve(wanted.layer_costs(), constraints, device_counts(wanted.devices)));
}

}  // namespace

void add_plan_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("plan", "find the best partition and schedule for given costs");
  auto wanted = std::make_shared<PlanArguments>();
  wanted->add_to(*verb);
  const std::string profile_help =
      "measure the layers of a network in place of --costs: 'penstock plan --profile --help'";
  verb->add_flag("--profile", profile_help);
  verb->footer(
      "Example:\n  penstock plan --costs docs/example_costs.json --micro-batches 8,16 --output model.plan\n"
      "  penstock plan --layers 16 --stages 4 --chunks 2");
  verb->callback([wanted] { plan_as(*wanted); });
}

}  // namespace penstock::cli
