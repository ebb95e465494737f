#include "penstock/plan/plan_file.h"

#include <algorithm>
#include <optional>
#include <span>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/validate.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view plan_file = "the plan file";
constexpr const char* plan_key = "penstock_plan";
constexpr int plan_version = 1;
constexpr std::int64_t most_replicas = 65536;

WeightGradients mode_named(const StrictValue& value) {
  const std::string name = value.text();
  const std::optional<WeightGradients> mode = weight_gradients_named(name);
  require<DataError>(mode && mode != WeightGradients::automatic, value.place(), " is '", printable(name),
                     "': stream, fused and grouped are possible");
  return *mode;
}

std::vector<double> amounts(const StrictValue& value) {
  std::vector<double> read;
  for (const StrictValue& item : value.list()) read.push_back(item.amount());
  return read;
}

std::vector<std::string> texts(const StrictValue& value) {
  std::vector<std::string> read;
  for (const StrictValue& item : value.list()) read.push_back(item.text());
  return read;
}

Prediction read_prediction(const StrictValue& value) {
  value.require_members({"makespan", "bubble_makespan", "bubble_span", "peak_activations", "memory_bytes"});
  return {value["makespan"].amount(), value["bubble_makespan"].amount(), value["bubble_span"].amount(),
          amounts(value["peak_activations"]), amounts(value["memory_bytes"])};
}

Schedule read_lines(const StrictValue& value) {
  try {
    return read_schedule(value.lines());
  } catch (const DataError& error) {
    throw DataError(say(value.place(), " is not a schedule: ", error.what()));
  }
}

void require_whole(const Plan& plan) {
  const auto same = [](const char* name, std::size_t held, const char* of, int expected) {
    require<DataError>(held == static_cast<std::size_t>(expected), "the plan file has ", name, " for ", held, " ", of,
                       ", and its schedule has ", expected);
  };
  same("layers", plan.stages.size(), "stages", plan.schedule.stage_count());
  same("peak_activations", plan.prediction.peak_activations.size(), "ranks", plan.schedule.rank_count());
  same("memory_bytes", plan.prediction.memory_bytes.size(), "ranks", plan.schedule.rank_count());
  if (!plan.devices.empty())
    same("devices", plan.devices.size(), "ranks of all replicas", plan.schedule.rank_count() * plan.replicas);
  for (std::size_t s = 0; s < plan.stages.size(); ++s)
    require<DataError>(!plan.stages[s].empty(), "the plan file's stages[", s, "] has no layers");
  require<DataError>(plan.schedule.more_pipelines.empty(), "the plan file's schedule has ",
                     plan.schedule.pipeline_count(), " copies of each stage, but a pipeline executes one");
  require<DataError>(!plan.schedule.is_lowered(),
                     "the plan file's schedule has messages or a step in it: a plan holds "
                     "compute instructions, and the model's links say what is added");
  require<DataError>(!plan.schedule.is_forward_only(), "the plan file's schedule only goes forward: a plan trains");
  validate(plan.schedule).require_ok(plan.schedule);
}

constexpr std::string_view tuning_file = "the tuning file";
constexpr const char* tuning_key = "penstock_tuning";
constexpr int tuning_version = 1;

MeasuredCandidate read_step(const StrictValue& step) {
  step.require_members({"candidate", "ms"});
  return {step["candidate"].text(), step["ms"].amount()};
}

}  // namespace

std::string partition_of(const Plan& plan) {
  if (plan.stages.size() == 1) return "uniform";
  return listed(std::span(plan.stages).subspan(1), ",", [](const std::vector<std::string>& s) { return s.front(); });
}

Plan read_plan(std::string_view text) {
  const nlohmann::json document = parse_strictly(text, plan_file);
  const StrictValue root(document, plan_file);
  root.require_version(plan_key, plan_version, ": `penstock plan --output FILE` writes one");
  root.require_members({plan_key, "costs", "time_unit", "weight_gradients", "kernels", "stages", "replicas", "devices",
                        "recompute", "prediction", "schedule"});
  Plan plan{.costs = root["costs"].text(),
            .time_unit = root["time_unit"].text(),
            .weight_gradients = mode_named(root["weight_gradients"]),
            .kernels = root.has("kernels") ? root["kernels"].lines() : "",
            .stages = {},
            .replicas = root.has("replicas") ? static_cast<int>(root["replicas"].whole(1, most_replicas)) : 1,
            .devices = root.has("devices") ? texts(root["devices"]) : std::vector<std::string>(),
            .recompute = root.has("recompute") ? texts(root["recompute"]) : std::vector<std::string>(),
            .prediction = read_prediction(root["prediction"]),
            .schedule = read_lines(root["schedule"])};
  for (const StrictValue& stage : root["stages"].list()) plan.stages.push_back(texts(stage));
  require_whole(plan);
  return plan;
}

std::string write_plan(const Plan& plan) {
  const Prediction& prediction = plan.prediction;
  ordered_json document = {{plan_key, plan_version},
                           {"costs", plan.costs},
                           {"time_unit", plan.time_unit},
                           {"weight_gradients", to_string(plan.weight_gradients)}};
  if (!plan.kernels.empty()) document["kernels"] = lines_of(plan.kernels);
  document["stages"] = plan.stages;
  if (plan.replicas != 1) document["replicas"] = plan.replicas;
  if (!plan.devices.empty()) document["devices"] = plan.devices;
  if (!plan.recompute.empty()) document["recompute"] = plan.recompute;
  document["prediction"] = {{"makespan", prediction.makespan},
                            {"bubble_makespan", prediction.bubble_makespan},
                            {"bubble_span", prediction.bubble_span},
                            {"peak_activations", prediction.peak_activations},
                            {"memory_bytes", prediction.memory_bytes}};
  document["schedule"] = lines_of(write_schedule(plan.schedule));
  std::string text = exact_json_text(document, "this plan", 2) + "\n";
  require<DataError>(read_plan(text) == plan, "this plan has values that a plan file cannot represent");
  return text;
}

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
