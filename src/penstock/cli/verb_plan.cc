#include <cmath>
#include <iostream>
#include <memory>

#include "penstock/base/error.h"
#include "penstock/base/read_text.h"
#include "penstock/cli/plan_output.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/uniform_plan.h"
#include "penstock/cli/value_flags.h"
#include "penstock/cli/verbs.h"
#include "penstock/plan/plan.h"

namespace penstock {
namespace {

struct PlanArguments {
  std::string costs;
  std::optional<int> layers;
  std::optional<int> chunks;
  std::optional<int> ranks;
  std::vector<int> micro_batches;
  std::optional<double> memory_cap;
  std::optional<MemoryLimit> memory_limit;
  std::vector<std::string> schedules;
  WeightGradients weight_gradients = WeightGradients::automatic;
  PlanOutput shown;

  void add_to(CLI::App& verb) {
    verb.add_option("--costs", costs, "costs of the layers and the machine: docs/cost_file.md")->type_name("FILE");
    CLI::Option* uniform =
        verb.add_option("--layers", layers, "without costs: this number of layers, partitioned uniformly")
            ->type_name("N")
            ->check(CLI::PositiveNumber);
    verb.add_option("--ranks,--stages", ranks, "p, pipeline ranks; overrides the file's")
        ->type_name("P")
        ->check(CLI::PositiveNumber);
    verb.add_option("--chunks", chunks, "with --layers: v, stages per rank (default: 1)")
        ->type_name("V")
        ->check(CLI::PositiveNumber)
        ->needs(uniform);
    verb.add_option("--micro-batches", micro_batches, "the m's to try; overrides the file's")
        ->type_name("M[,M...]")
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    verb.add_option("--memory-cap", memory_cap, "limit of bytes per rank, with parameters; overrides the file's")
        ->type_name("BYTES")
        ->check(CLI::NonNegativeNumber);
    add_memory_limit(verb, memory_limit, "; schedules above it do not fit");
    verb.add_option("--schedules", schedules, "the schedules to try; by default all that train")
        ->type_name("NAME[,NAME...]")
        ->delimiter(',');
    add_weight_gradients(verb, weight_gradients,
                         "stream (a W per micro-batch), fused (one for the step) or auto (both are tried)")
        ->type_name("MODE")
        ->default_str(to_string(weight_gradients));
    shown.add_to(verb);
    for (const char* flag :
         {"--costs", "--micro-batches", "--memory-cap", "--memory-limit", "--schedules", "--all", "--output"})
      uniform->excludes(verb.get_option(flag));
  }

  UniformPlan uniform() const {
    require<ConfigError>(ranks.has_value(), "--layers ", *layers, " on how many ranks? Give --stages P");
    return {*layers, *ranks, chunks.value_or(1)};
  }

  LayerCosts layer_costs() const {
    LayerCosts read = read_file(costs, read_layer_costs);
    if (ranks) read.ranks = *ranks;
    if (!micro_batches.empty()) read.micro_batches = micro_batches;
    if (memory_cap) read.memory_cap_bytes = std::floor(*memory_cap);
    return read;
  }
};

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
  wanted.shown.write(make_plan(wanted.layer_costs(), {.schedules = wanted.schedules,
                                                      .weight_gradients = wanted.weight_gradients,
                                                      .memory_limit = wanted.memory_limit}));
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

}  // namespace penstock
