#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

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
  bool shows_critical_path = false;

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
    verb.add_flag("--critical-path", shows_critical_path,
                  "show the instructions and messages that decide the makespan");
    verb.add_option("--json", json, "write the result as JSON; - is standard output")->type_name("FILE");
  }
};

struct Simulated {
  Schedule schedule;  // lowered
  Simulation simulation;
};

nlohmann::ordered_json to_json(const Simulated& simulated) {
  const auto& [schedule, simulation] = simulated;
  return {{"schedule", schedule.name},
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
}

std::string to_table(const Simulated& simulated) {
  const auto& [schedule, simulation] = simulated;
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

/// A row for each schedule.
std::string to_table(const std::vector<Simulated>& all) {
  std::vector<std::vector<std::string>> rows{
      {"schedule", "ranks", "stages", "m", "makespan", "bubble", "peak activations"}};
  for (const auto& [schedule, simulation] : all)
    rows.push_back({schedule.name, std::to_string(schedule.rank_count()), std::to_string(schedule.stage_count()),
                    std::to_string(schedule.micro_batches), fixed(simulation.makespan, 3),
                    percent(simulation.bubble_makespan), fixed(std::ranges::max(simulation.peak_activations), 2)});
  return aligned(rows);
}

/// A line for each part of the path on one rank: "rank 1: 1F0 to 1B2, 3.000 to 9.000, after a message".
std::string to_text(const std::vector<CriticalSlot>& path) {
  std::string text = "critical path:\n";
  for (std::size_t begin = 0, end = 1; begin < path.size(); begin = end++) {
    while (end < path.size() && !path[end].waits_for_message) ++end;
    const CriticalSlot &first = path[begin], &last = path[end - 1];
    text += say("rank ", first.rank.value(), ": ", to_string(first.slot.instruction),
                end - begin > 1 ? say(" to ", to_string(last.slot.instruction)) : "", ", ", fixed(first.slot.begin, 3),
                " to ", fixed(last.slot.end, 3), first.waits_for_message ? ", after a message\n" : "\n");
  }
  return text;
}

/// The costs on the devices of the cluster, if one is given.
StageCosts costs_of(const Simulate& wanted, const StageCosts& costs, const Schedule& schedule) {
  if (wanted.cluster.empty()) return costs;
  OnCluster options = wanted.on_cluster;
  if (wanted.message_bytes) {
    const auto bytes = parse_bytes(*wanted.message_bytes);
    require<ConfigError>(bytes.has_value(), "--message-bytes ", *wanted.message_bytes, ": write bytes with a unit (",
                         byte_unit_names, "), such as 24MiB");
    options.message_bytes = static_cast<double>(*bytes);
  }
  return placed_costs(costs, schedule, read_file(wanted.cluster, read_cluster), options);
}

void simulate_as(const Simulate& wanted) {
  if (!wanted.json.empty()) require_place_for(wanted.json);
  std::vector<Simulated> all;
  for (const NamedSchedule& named : wanted.schedule.get_all(wanted.costs.costs())) {
    Schedule schedule = ready_to_run(named);
    Simulation simulation = simulate(schedule, costs_of(wanted, named.costs, schedule),
                                     {.links = {}, .keep_slots = wanted.shows_critical_path});
    all.push_back({std::move(schedule), std::move(simulation)});
  }
  std::string text = all.size() == 1 ? to_table(all.front()) : to_table(all);
  if (wanted.shows_critical_path)
    for (const Simulated& one : all)
      text += say(all.size() > 1 ? one.schedule.name + ": " : "", to_text(critical_path(one.schedule, one.simulation)));
  // If JSON goes to standard output, text must not.
  (wanted.json == "-" ? std::cerr : std::cout) << text;
  nlohmann::ordered_json document = nlohmann::ordered_json::array();
  for (const Simulated& one : all) document.push_back(to_json(one));
  if (!wanted.json.empty()) write_text(wanted.json, json_text(all.size() == 1 ? document.front() : document, 2) + "\n");
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
