#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/cli/schedule_argument.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/plan/cost_list.h"
#include "penstock/trace/text_table.h"

namespace penstock {
namespace {

struct Simulate {
  ScheduleArgument schedule;
  std::string forward = "1";
  std::string input_grad = "1";
  std::string weight_grad = "1";
  std::string update = "0";
  std::string message = "0";
  std::string json;

  void add_to(CLI::App& verb) {
    schedule.add_to(verb);
    const auto add_cost = [&](const char* flag, std::string& text, const char* what) {
      verb.add_option(flag, text, what)->type_name("COST[,COST...]")->capture_default_str();
    };
    add_cost("--cost-f", forward, "F, the forward of one micro-batch: for all stages, or one for each");
    add_cost("--cost-i", input_grad, "I, the gradient of a stage's inputs");
    add_cost("--cost-w", weight_grad, "W, the gradient of a stage's parameters (B takes I + W)");
    add_cost("--cost-update", update, "the optimiser's step");
    verb.add_option("--cost-comm", message, "C, the time a message takes")->type_name("COST")->capture_default_str();
    verb.add_option("--json", json, "write the figures as JSON; - is standard output")->type_name("FILE");
  }

  Costs costs() const {
    const std::vector<double> carried = parse_cost_list("--cost-comm", message);
    require<ConfigError>(carried.size() == 1, "--cost-comm ", message, ": there are ", carried.size(),
                         " costs, and all messages take the same: give 1");
    return {parse_cost_list("--cost-f", forward), parse_cost_list("--cost-i", input_grad),
            parse_cost_list("--cost-w", weight_grad), parse_cost_list("--cost-update", update), carried.front()};
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
                                          {"busy", simulation.busy}};
  return figures.dump(2) + "\n";
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
  const Costs costs = wanted.costs();
  Schedule schedule = wanted.schedule.get().schedule;
  judge(schedule).require_ok(schedule);
  // The optimiser's step is a word of lowered schedules only.
  if (!schedule.is_lowered()) schedule = lower(schedule);
  const Simulation simulation = simulate(schedule, costs);
  // Where JSON goes to standard output, nothing else may.
  (wanted.json == "-" ? std::cerr : std::cout) << to_table(schedule, simulation);
  if (!wanted.json.empty()) write_text(wanted.json, to_json(schedule, simulation));
}

}  // namespace

void add_simulate_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("simulate", "how long a schedule takes and what it holds, against costs");
  auto wanted = std::make_shared<Simulate>();
  wanted->add_to(*verb);
  verb->footer("Example:\n  penstock simulate --schedule 1f1b --stages 4 --micro-batches 16 --cost-f 1.1 --cost-i 1.2 "
               "--cost-w 0.9");
  verb->callback([wanted] { simulate_as(*wanted); });
}

}  // namespace penstock
