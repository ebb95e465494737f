#include <cmath>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/plan/plan.h"

namespace penstock {
namespace {

constexpr std::size_t shown_trials = 24;

struct PlanArguments {
  std::string costs;
  std::optional<int> ranks;
  std::vector<int> micro_batches;
  std::optional<double> memory_cap;
  std::vector<std::string> schedules;
  std::string weight_gradients = "auto";
  std::string output;
  std::string json;
  bool shows_all = false;

  void add_to(CLI::App& verb) {
    verb.add_option("--costs", costs, "what the layers cost, and the machine: docs/cost_file.md")
        ->required()
        ->type_name("FILE");
    verb.add_option("--ranks", ranks, "p, in place of the file's")->type_name("P")->check(CLI::PositiveNumber);
    verb.add_option("--micro-batches", micro_batches, "the m's to try, in place of the file's")
        ->type_name("M[,M...]")
        ->delimiter(',')
        ->check(CLI::PositiveNumber);
    verb.add_option("--memory-cap", memory_cap, "most bytes per rank, in place of the file's")
        ->type_name("BYTES")
        ->check(CLI::NonNegativeNumber);
    verb.add_option("--schedules", schedules, "the schedules to try; by default all that train")
        ->type_name("NAME[,NAME...]")
        ->delimiter(',');
    verb.add_option("--weight-gradients", weight_gradients,
                    "stream (a W per micro-batch), fused (one for the step) or auto (both are tried)")
        ->type_name("MODE")
        ->check(CLI::IsMember({"stream", "fused", "auto"}))
        ->capture_default_str();
    verb.add_flag("--all", shows_all, "show all that was tried, not only the best");
    verb.add_option("--output", output, "write the plan, for `penstock train --plan`; - is standard output")
        ->type_name("FILE");
    verb.add_option("--json", json, "write all that was tried as JSON; - is standard output")->type_name("FILE");
  }

  LayerCosts layer_costs() const {
    LayerCosts read;
    try {
      read = read_layer_costs(read_text(costs));
    } catch (const DataError& error) {
      const std::string message = error.what();
      throw DataError(message.starts_with(costs) ? message : say(costs, ": ", message));
    }
    if (ranks) read.ranks = *ranks;
    if (!micro_batches.empty()) read.micro_batches = micro_batches;
    if (memory_cap) read.memory_cap_bytes = std::floor(*memory_cap);
    return read;
  }

  PlanWishes wishes() const {
    PlanWishes wishes{schedules, {}};
    if (weight_gradients == "stream") wishes.weight_gradients = WeightMode::stream;
    if (weight_gradients == "fused") wishes.weight_gradients = WeightMode::fused;
    return wishes;
  }
};

nlohmann::ordered_json to_json(const Trial& trial) {
  nlohmann::ordered_json figures = {{"schedule", trial.schedule},
                                    {"chunks", trial.chunks},
                                    {"micro_batches", trial.micro_batches},
                                    {"weight_gradients", to_string(trial.weight_gradients)},
                                    {"cut", to_string(trial.cut)},
                                    {"cut_is_exact", trial.is_exact},
                                    {"fits", trial.fits},
                                    {"memory_bytes", trial.prediction.memory_bytes}};
  if (!trial.fits) return figures;
  figures["makespan"] = trial.prediction.makespan;
  figures["bubble_makespan"] = trial.prediction.bubble_makespan;
  figures["bubble_span"] = trial.prediction.bubble_span;
  figures["peak_activations"] = trial.prediction.peak_activations;
  return figures;
}

std::string to_json(const Planned& planned) {
  nlohmann::ordered_json trials = nlohmann::ordered_json::array();
  for (const Trial& trial : planned.trials) trials.push_back(to_json(trial));
  const nlohmann::ordered_json document = {{"costs", planned.plan.costs},
                                           {"time_unit", planned.plan.time_unit},
                                           {"chosen", trials.front()},
                                           {"stages", planned.plan.stages},
                                           {"trials", trials},
                                           {"left_out", planned.left_out}};
  return document.dump(2) + "\n";
}

std::string to_text(const Planned& planned, bool shows_all) {
  std::string text = to_table(planned, shows_all ? 0 : shown_trials) + "\n" + explanation(planned);
  for (std::size_t s = 0; s < planned.plan.stages.size(); ++s) {
    const std::vector<std::string>& layers = planned.plan.stages[s];
    text += say("stage ", s, " on rank ", planned.plan.schedule.rank_of_stage[s].value(), ": ", layers.front(),
                layers.size() > 1 ? say(" to ", layers.back(), " (", layers.size(), " layers)") : "", "\n");
  }
  for (const std::string& reason : planned.left_out) text += say("not tried: ", reason, "\n");
  return text;
}

void plan_as(const PlanArguments& wanted) {
  require<ConfigError>(wanted.output != "-" || wanted.json != "-",
                       "--output - and --json - would both write to standard output: give a file to one of them");
  for (const std::string& path : {wanted.output, wanted.json})
    if (!path.empty()) require_place_for(path);
  const Planned planned = make_plan(wanted.layer_costs(), wanted.wishes());
  // Where a file goes to standard output, nothing else may.
  const bool is_taken = wanted.output == "-" || wanted.json == "-";
  (is_taken ? std::cerr : std::cout) << to_text(planned, wanted.shows_all);
  if (!wanted.output.empty()) write_text(wanted.output, write_plan(planned.plan));
  if (!wanted.json.empty()) write_text(wanted.json, to_json(planned));
}

}  // namespace

void add_plan_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("plan", "costs in; the best cut and schedule out, and what else was tried");
  auto wanted = std::make_shared<PlanArguments>();
  wanted->add_to(*verb);
  verb->footer("Example:\n  penstock plan --costs docs/example_costs.json --micro-batches 8,16 --output model.plan");
  verb->callback([wanted] { plan_as(*wanted); });
}

}  // namespace penstock
