#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/plan/plan.h"

namespace penstock::cli {
namespace {

struct FitArguments {
  std::string costs;
  std::string measured;
  std::string terms = "slowdown,send_share,per_step";
  bool overlaps = false;
  std::string output;
  std::string json;

  void add_to(CLI::App& verb) {
    verb.add_option("--costs", costs, "costs of the layers and the machine: docs/cost_file.md")
        ->type_name("FILE")
        ->required();
    verb.add_option("--measured", measured,
                    "measured steps: CSV with the columns schedule, ranks, micro_batches, measured, and if wanted "
                    "chunks, partition, weight_gradients")
        ->type_name("FILE")
        ->required();
    verb.add_option("--terms", terms, "what to fit")->type_name("TERM[,TERM...]")->capture_default_str();
    verb.add_flag("--overlap", overlaps, "a rank began its next step when its own work was done, without a barrier");
    verb.add_option("--output", output, "write the costs with these terms; - is standard output")->type_name("FILE");
    verb.add_option("--json", json, "write the result as JSON; - is standard output")->type_name("FILE");
  }
};

std::string to_json(const TermFit& fit, const std::vector<MeasuredStep>& steps) {
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < steps.size(); ++i)
    runs.push_back({{"run", steps[i].label},
                    {"measured", steps[i].measured},
                    {"predicted", fit.predicted[i]},
                    {"error", fit.errors[i]}});
  const nlohmann::ordered_json document = {
      {"terms",
       {{"slowdown", fit.terms.slowdown}, {"send_share", fit.terms.send_share}, {"per_step", fit.terms.per_step}}},
      {"median_error", fit.median_error},
      {"worst_error", fit.worst_error},
      {"worst_error_without", fit.worst_error_without},
      {"runs", runs},
      {"warnings", fit.warnings}};
  return json_text(document, 2) + "\n";
}

void fit_as(const FitArguments& wanted) {
  require<ConfigError>(wanted.output != "-" || wanted.json != "-",
                       "--output - and --json - would both write to standard output: pass a file to one of them");
  for (const std::string& path : {wanted.output, wanted.json})
    if (!path.empty()) require_place_for(path);
  const FittedTerms which = fitted_terms_named(wanted.terms);
  LayerCosts costs = read_file(wanted.costs, read_layer_costs);
  std::vector<MeasuredStep> steps =
      read_file(wanted.measured, [&](const std::string& text) { return read_measured_runs(text, costs); });
  for (MeasuredStep& step : steps) step.overlaps = wanted.overlaps;
  const TermFit fit = fit_terms(steps, which);
  // If a file goes to standard output, the report must not.
  const bool is_taken = wanted.output == "-" || wanted.json == "-";
  (is_taken ? std::cerr : std::cout) << to_table(fit, steps);
  costs.terms = fit.terms;
  if (!wanted.output.empty()) write_text(wanted.output, write_layer_costs(costs));
  if (!wanted.json.empty()) write_text(wanted.json, to_json(fit, steps));
}

}  // namespace

void add_fit_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("fit", "fit the terms of a step to measured steps, and say how well");
  auto wanted = std::make_shared<FitArguments>();
  wanted->add_to(*verb);
  verb->footer("Example:\n  penstock fit --costs model.costs --measured runs.csv --output fitted.costs");
  verb->callback([wanted] { fit_as(*wanted); });
}

}  // namespace penstock::cli
