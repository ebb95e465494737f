#include <cmath>
#include <iostream>
#include <memory>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/cli/text_file.h"
#include "penstock/cli/verbs.h"
#include "penstock/plan/plan.h"
#include "penstock/trace/trace.h"

namespace penstock::cli {
namespace {

using nlohmann::ordered_json;

// About 5 million instructions.
constexpr std::uint64_t most_trace_bytes = std::uint64_t{1} << 30;

Trace load_trace(const std::string& path) { return read_file(path, read_trace, {.most_bytes = most_trace_bytes}); }

constexpr const char* trace_help = "a file written by `penstock train --trace FILE`";

/// The input file and the outputs.
struct TraceFiles {
  std::string trace;
  std::string output = "-";

  void add_to(CLI::App& verb) {
    verb.add_option("trace", trace, trace_help)->type_name("FILE")->required();
    verb.add_option("--output", output, "where to write; - is standard output")
        ->type_name("FILE")
        ->capture_default_str();
  }
};

struct TraceReport {
  TraceFiles files;
  std::string costs;
  std::string cluster;
  std::string json;

  void add_to(CLI::App& verb) {
    files.add_to(verb);
    verb.add_option("--costs", costs, "costs of the layers (docs/cost_file.md), in place of those in the trace")
        ->type_name("FILE");
    verb.add_option("--cluster", cluster, "the devices of the run (docs/cost_file.md), rank r on device r")
        ->type_name("FILE");
    verb.add_option("--json", json, "write the report as JSON; - is standard output")->type_name("FILE");
  }
};

ordered_json to_json(const RankAccount& rank) {
  std::vector<std::int32_t> stages;
  for (const StageId stage : rank.stages) stages.push_back(stage.value());
  return {{"stages", stages},
          {"compute", rank.compute},
          {"update", rank.update},
          {"synchronisation", rank.synchronisation},
          {"sending", rank.communication},
          {"warm_up", rank.wait_warmup},
          {"imbalance", rank.wait_imbalance},
          {"message", rank.wait_message},
          {"woken_late", rank.wait_late},
          {"drain", rank.wait_drain},
          {"other", rank.other},
          {"total", rank.total}};
}

ordered_json to_json(const Advice& advice) {
  ordered_json recommendations = ordered_json::array();
  for (const Recommendation& recommendation : advice.recommendations)
    recommendations.push_back({{"kind", to_string(recommendation.kind)},
                               {"saved", recommendation.saved},
                               {"step_ms", recommendation.step_ms},
                               {"sentence", recommendation.sentence}});
  return {{"step_ms", advice.step_ms}, {"sentence", advice.sentence}, {"remedies", recommendations}};
}

std::string to_json(const Account& account, const Advice& advice) {
  ordered_json ranks = ordered_json::array();
  for (const RankAccount& rank : account.ranks) ranks.push_back(to_json(rank));
  ordered_json document = {{"step", account.step},
                           {"median_of", account.steps},
                           {"shortest_ms", account.shortest_ms},
                           {"longest_ms", account.longest_ms},
                           {"measured_ms", account.measured_ms},
                           {"predicted_ms", account.predicted_ms},
                           {"predicted_from", "the times of this run's own instructions"},
                           {"planned_ms", nullptr},
                           {"between_steps_ms", nullptr},
                           {"bubble_measured", account.bubble_measured},
                           {"bubble_predicted", account.bubble_predicted},
                           {"bubble_span_measured", account.bubble_span_measured},
                           {"bubble_span_predicted", account.bubble_span_predicted},
                           {"ranks", ranks},
                           {"advice", to_json(advice)}};
  if (account.planned_ms) document["planned_ms"] = *account.planned_ms;
  if (account.between_steps_ms) document["between_steps_ms"] = *account.between_steps_ms;
  return json_text(document, 2) + "\n";
}

void report_as(const TraceReport& wanted) {
  const Trace trace = load_trace(wanted.files.trace);
  std::optional<LayerCosts> costs;
  if (!wanted.costs.empty()) costs = read_file(wanted.costs, read_layer_costs);
  const Account figures = account(trace);
  std::optional<Cluster> cluster;
  if (!wanted.cluster.empty()) cluster = read_file(wanted.cluster, read_cluster);
  const Advice advice = advise(trace, costs, cluster);
  if (!wanted.json.empty()) write_text(wanted.json, to_json(figures, advice));
  // If JSON goes to standard output, text must not.
  const std::string text = to_table(figures) + advice.sentence + "\n";
  if (wanted.json == "-" && wanted.files.output == "-")
    std::cerr << text;
  else
    write_text(wanted.files.output, text);
}

struct TraceCheck {
  std::string trace;
  double tolerance_us = 0;

  void add_to(CLI::App& verb) {
    verb.add_option("trace", trace, trace_help)->type_name("FILE")->required();
    verb.add_option("--tolerance", tolerance_us,
                    "largest error of the clocks of several hosts, in microseconds (docs/trace_format.md)")
        ->type_name("US")
        ->check(CLI::Range(0.0, 1e9))
        ->capture_default_str();
  }
};

void check(const TraceCheck& wanted) {
  constexpr double ns_per_us = 1e3;
  const OrderCheck check = check_order(load_trace(wanted.trace), std::llround(wanted.tolerance_us * ns_per_us));
  require<Failure>(!check.violation, wanted.trace, ": ", check.violation.value_or(""));
  require<DataError>(check.steps > 0, wanted.trace, ": has no step that all ranks have recorded");
  std::cout << "in order: " << check.instructions << " instructions of "
            << counted(static_cast<std::int64_t>(check.steps), "step") << "\n";
}

}  // namespace

void add_trace_verb(CLI::App& program) {
  CLI::App* verb = program.add_subcommand("trace", "analyse a traced run, as a table or a picture, or check it");
  verb->footer("Example:\n  penstock trace report trace.json");

  CLI::App* report =
      verb->add_subcommand("report", "where the time went, predicted and measured, with recommendations");
  auto wanted = std::make_shared<TraceReport>();
  wanted->add_to(*report);
  report->footer("Example:\n  penstock trace report trace.json");
  report->callback([wanted] { report_as(*wanted); });

  CLI::App* validate = verb->add_subcommand("validate", "check that no instruction ran before what it depends on");
  auto checked = std::make_shared<TraceCheck>();
  checked->add_to(*validate);
  validate->footer("Example:\n  penstock trace validate trace.json");
  validate->callback([checked] { check(*checked); });

  CLI::App* svg = verb->add_subcommand("svg", "the median step above its prediction, as a picture");
  auto files = std::make_shared<TraceFiles>();
  files->add_to(*svg);
  svg->footer("Example:\n  penstock trace svg trace.json --output step.svg");
  svg->callback([files] { write_text(files->output, step_svg(load_trace(files->trace))); });
}

}  // namespace penstock::cli
