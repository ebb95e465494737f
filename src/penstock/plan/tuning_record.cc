#include "penstock/plan/tuning_record.h"

#include "penstock/base/error.h"
#include "penstock/base/json_text.h"
#include "penstock/base/strict_json.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view tuning_file = "the tuning file";
constexpr const char* tuning_key = "penstock_tuning";
constexpr int tuning_version = 1;

MeasuredCandidate read_step(const StrictValue& step) {
  step.require_members({"candidate", "ms"});
  return {step["candidate"].text(), step["ms"].amount()};
}

}  // namespace

TuningRecord read_tuning_record(std::string_view text) {
  const nlohmann::json document = parse_strictly(text, tuning_file);
  const StrictValue root(document, tuning_file);
  root.require_version(tuning_key, tuning_version);
  root.require_members(
      {tuning_key, "key", "measured_at", "micro_batches", "partition", "kernels", "steps", "plan", "costs"});
  TuningRecord record;
  record.key = root["key"].lines();
  record.measured_at = root["measured_at"].text();
  record.micro_batches = static_cast<int>(root["micro_batches"].whole(1, most_micro_batches));
  record.partition = root["partition"].text();
  if (root.has("kernels")) record.kernels = root["kernels"].lines();
  if (root.has("steps"))
    for (const StrictValue& step : root["steps"].list()) record.steps.push_back(read_step(step));
  if (root.has("plan")) record.plan = read_plan(json_text(document.at("plan")));
  if (root.has("costs")) record.costs = read_layer_costs(json_text(document.at("costs")));
  require<DataError>(record.plan.has_value() == record.costs.has_value(),
                     "the tuning file has a plan or costs, but not both: a plan is made from costs");
  return record;
}

std::string write_tuning_record(const TuningRecord& record) {
  ordered_json document = {{tuning_key, tuning_version},
                           {"key", lines_of(record.key)},
                           {"measured_at", record.measured_at},
                           {"micro_batches", record.micro_batches},
                           {"partition", record.partition}};
  if (!record.kernels.empty()) document["kernels"] = lines_of(record.kernels);
  if (!record.steps.empty()) document["steps"] = ordered_json::array();
  for (const MeasuredCandidate& step : record.steps)
    document["steps"].push_back({{"candidate", step.candidate}, {"ms", step.step_ms}});
  // Members of an object, so that people see one document.
  if (record.plan) document["plan"] = parse_in_order(write_plan(*record.plan));
  if (record.costs) document["costs"] = parse_in_order(write_layer_costs(*record.costs));
  std::string text = exact_json_text(document, "this tuning record", 1) + "\n";
  require<DataError>(read_tuning_record(text) == record,
                     "this tuning record has values that a tuning file cannot represent");
  return text;
}

}  // namespace penstock
