#include "penstock/cli/plan_output.h"

#include <iostream>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/cli/text_file.h"
#include "penstock/plan/plan.h"

namespace penstock::cli {
namespace {

constexpr std::size_t shown_candidates = 24;

nlohmann::ordered_json to_json(const Candidate& candidate) {
  nlohmann::ordered_json figures = {{"schedule", candidate.schedule},
                                    {"chunks", candidate.chunks},
                                    {"micro_batches", candidate.micro_batches},
                                    {"ranks", candidate.ranks},
                                    {"replicas", candidate.replicas},
                                    {"memory_limit", nullptr},
                                    {"weight_gradients", to_string(candidate.weight_gradients)},
                                    {"partition", to_string(candidate.partition)},
                                    {"partition_is_exact", candidate.is_exact},
                                    {"stages", candidate.stages},
                                    {"devices", candidate.devices},
                                    {"recompute", candidate.recomputed},
                                    {"fits", candidate.fits},
                                    {"memory_bytes", candidate.prediction.memory_bytes}};
  const auto add_limit = [&](const std::string& name, const std::optional<MemoryLimit>& limit) {
    if (!limit) return;
    if (const auto* in_bytes = std::get_if<BytesPerRank>(&*limit))
      figures[name + "_bytes"] = in_bytes->bytes;
    else
      figures[name] = std::get<TimesOf1F1B>(*limit).times;
  };
  add_limit("memory_limit", candidate.memory_limit);
  add_limit("needed_limit", candidate.needed_limit);
  if (!candidate.fits) return figures;
  figures["makespan"] = candidate.prediction.makespan;
  figures["bubble_makespan"] = candidate.prediction.bubble_makespan;
  figures["bubble_span"] = candidate.prediction.bubble_span;
  figures["peak_activations"] = candidate.prediction.peak_activations;
  return figures;
}

std::string to_json(const Planned& planned) {
  nlohmann::ordered_json candidates = nlohmann::ordered_json::array();
  for (const Candidate& candidate : planned.candidates) candidates.push_back(to_json(candidate));
  const nlohmann::ordered_json document = {{"costs", planned.plan.costs},  {"time_unit", planned.plan.time_unit},
                                           {"chosen", candidates.front()}, {"stages", planned.plan.stages},
                                           {"trials", candidates},         {"left_out", planned.left_out}};
  return json_text(document, 2) + "\n";
}

/// " (n0:0, n1:0)", the devices of a rank's replicas, the first few of many.
std::string devices_of(const Plan& plan, int rank) {
  if (plan.devices.empty()) return "";
  constexpr int most = 4;
  const auto begin = plan.devices.begin() + rank * plan.replicas;
  const std::vector<std::string> shown(begin, begin + std::min(most, plan.replicas));
  return say(" (", listed(shown), plan.replicas > most ? say(", ... ", plan.replicas, " devices") : "", ")");
}

std::string to_text(const Planned& planned, bool shows_all) {
  std::string text = to_table(planned, shows_all ? 0 : shown_candidates) + "\n" + explanation(planned);
  for (std::size_t s = 0; s < planned.plan.stages.size(); ++s) {
    const std::vector<std::string>& layers = planned.plan.stages[s];
    const int rank = planned.plan.schedule.rank_of_stage[s].value();
    text += say("stage ", s, " on rank ", rank, devices_of(planned.plan, rank), ": ", layers.front(),
                layers.size() > 1 ? say(" to ", layers.back(), " (", layers.size(), " layers)") : "", "\n");
  }
  for (const std::string& reason : planned.left_out) text += say("not tried: ", reason, "\n");
  return text;
}

}  // namespace

void PlanOutput::add_to(CLI::App& verb) {
  verb.add_flag("--all", shows_all, "show all candidates, not only the best");
  verb.add_option("--output", output, "write the plan, for `penstock train --plan`; - is standard output")
      ->type_name("FILE");
  verb.add_option("--json", json, "write all candidates as JSON; - is standard output")->type_name("FILE");
}

void PlanOutput::check() const {
  require<ConfigError>(output != "-" || json != "-",
                       "--output - and --json - would both write to standard output: pass a file to one of them");
  for (const std::string& path : {output, json})
    if (!path.empty()) require_place_for(path);
}

void PlanOutput::write(const Planned& planned) const {
  // If a file goes to standard output, the report must not.
  const bool is_taken = output == "-" || json == "-";
  (is_taken ? std::cerr : std::cout) << to_text(planned, shows_all);
  if (!output.empty()) write_text(output, write_plan(planned.plan));
  if (!json.empty()) write_text(json, to_json(planned));
}

}  // namespace penstock::cli
