#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/cli/schedule_argument.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/plan/placed_costs.h"

namespace penstock::cli {
namespace {

struct Simulate {
  ScheduleArgument schedule;
  CostFlags costs;
  std::string cluster;
  OnCluster on_cluster;
  std::optional<std::string> message_bytes;
  std::string json;

  void add_to(CLI::App& verb) {
    schedule.add_to(verb);
    costs.add_to(verb);
    CLI::Option* file =
        verb.add_option("--cluster", cluster, "devices and links: rank r runs on device r (docs/cost_file.md)");
    file->type_name("FILE");
    verb.add_option("--time-unit", on_cluster.time_unit, "with --cluster: the unit of the costs, s, ms, us or ns [ms]")
        ->type_name("UNIT")
        ->needs(file);
    verb.add_option("--message-bytes", message_bytes, "with --cluster: the size of a message, such as 24MiB")
        ->type_name("BYTES")
        ->needs(file);
    verb.add_option("--json", json, "write the result as JSON; - is standard output")->type_name("FILE");
  }
};

std::string to_json(const Schedule& schedule, const Simulation& simulation) {
  const nlohmann::ordered_json figures = {{"schedule", schedule.name},
                                          {"ranks", schedule.rank_count()},
                                          {"stages", schedule.stage_count()},
                                          {"micro_batches", schedule.micro_batches},
                                          {"makespan", simulation.makespan},
                                          {"span", simulation.span},
                                          {"bubble_makespan", simulation.bubble_makespan},
                                          {"bubble_span", simulation.bubble_span},
                                          {"peak_activations", simulation.peak_activations},
                                          {"peak_contexts", simulation.peak_contexts},
                                          {"busy", simulation.busy}};
  return json_text(figures, 2) + "\n";
}

std::string to_table(const Schedule& schedule, const Simulation& simulation) {
  std::vector<std::vector<std::string>> rows{{"rank", "busy", "idle", "peak activations"}};
  for (std::size_t rank = 0; rank < simulation.busy.size(); ++rank)
    rows.push_back({std::to_string(rank), fixed(simulation.busy[rank], 3),
                    fixed(simulation.makespan - simulation.busy[rank], 3),
                    fixed(simulation.peak_activations[rank], 2)});
  return say(schedule.name, ": ", schedule.rank_count(), " ranks, ", schedule.stage_count(), " stages, ",
             schedule.micro_batches, " micro-batches\n", aligned(rows), "makespan ", fixed(simulation.makespan, 3),
             ", bubble ", fixed(100 * simulation.bubble_makespan, 2), " %; span ", fixed(simulation.span, 3),
             ", bubble ", fixed(100 * simulation.bubble_span, 2), " %\n");
}

void simulate_as(const Simulate& wanted) {
  StageCosts costs = wanted.costs.costs();
  const Schedule schedule = ready_to_run(wanted.schedule.get(costs));
  if (!wanted.cluster.empty()) {
    OnCluster options = wanted.on_cluster;
    if (wanted.message_bytes) {
      const auto bytes = parse_bytes(*wanted.message_bytes);
      require<ConfigError>(bytes.has_value(), "--message-bytes ", *wanted.message_bytes, ": write bytes with a unit (",
                           byte_unit_names, "), such as 24MiB");
      options.message_bytes = static_cast<double>(*bytes);
    }
    costs = placed_costs(costs, schedule, read_file(wanted.cluster, read_cluster), options);
  }
  const Simulation simulation = simulate(schedule, costs);
  // If JSON goes to standard output, text must not.
  (wanted.json == "-" ? std::cerr : std::cout) << to_table(schedule, simulation);
  if (!wanted.json.empty()) write_text(wanted.json, to_json(schedule, simulation));
}

}  // namespace

void add_simulate_verb(CLI::App& program) {
  CLI::App* verb =
      program.add_subcommand("simulate", "simulate a schedule: time, bubble and live micro-batches for given costs");
  auto wanted = std::make_shared<Simulate>();
  wanted->add_to(*verb);
  verb->footer(
      "Example:\n  penstock simulate --schedule 1f1b --stages 4 --micro-batches 16 --cost-f 1.1 --cost-i 1.2 "
      "--cost-w 0.9");
  verb->callback([wanted] { simulate_as(*wanted); });
}

}  // namespace penstock::cli
