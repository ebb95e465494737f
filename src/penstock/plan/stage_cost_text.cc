#include "penstock/plan/stage_cost_text.h"

#include <cmath>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"

namespace penstock {

std::vector<double> parse_cost_list(std::string_view flag, std::string_view text) {
  std::vector<double> costs;
  for (const std::string_view item : listed_items(text)) {
    const auto cost = number_of<double>(item);
    require<ConfigError>(cost && std::isfinite(*cost) && *cost >= 0, flag, " ", text, ": cost ", costs.size() + 1,
                         " is '", item, "', which is not a finite number >= 0; write costs as 1.5 or 1,2,1.5");
    costs.push_back(*cost);
  }
  return costs;
}

namespace {

constexpr std::string_view stage_cost_file = "the cost file";
constexpr const char* stage_costs_key = "penstock_costs";

std::vector<double> list_of(const StrictValue& root, const char* key) {
  std::vector<double> list;
  if (root.has(key))
    for (const StrictValue& cost : root[key].list()) list.push_back(cost.amount());
  require<DataError>(!list.empty(), root.place(), " has no costs for ", key,
                     ": pass a list of one number for all stages or one for each, as [1, 2]");
  return list;
}

}  // namespace

StageCosts read_stage_costs(std::string_view text) {
  const nlohmann::json document = parse_strictly(text, stage_cost_file);
  const StrictValue root(document, stage_cost_file);
  require<DataError>(!root.has("penstock_layer_costs"), stage_cost_file,
                     " has costs of layers, which `penstock plan --costs` takes; ",
                     "a schedule needs costs of stages (docs/schedule_format.md)");
  root.require_version(stage_costs_key, stage_costs_version,
                       ": docs/schedule_format.md describes the format of costs per stage");
  root.require_members({stage_costs_key, "forward", "input_grad", "weight_grad", "update", "message", "message_gap",
                        "weight_share", "weight_grad_fused", "backward", "activation_bytes", "slowdown", "send_share",
                        "per_step"});
  StageCosts costs;
  costs.forward = list_of(root, "forward");
  costs.input_grad = list_of(root, "input_grad");
  costs.weight_grad = list_of(root, "weight_grad");
  if (root.has("update")) costs.update = list_of(root, "update");
  if (root.has("message")) costs.message = root["message"].amount();
  if (root.has("message_gap")) costs.message_gap = root["message_gap"].amount();
  if (root.has("weight_share")) costs.weight_share = root["weight_share"].share();
  if (root.has("weight_grad_fused")) costs.weight_grad_fused = list_of(root, "weight_grad_fused");
  if (root.has("backward")) costs.backward = list_of(root, "backward");
  if (root.has("activation_bytes")) costs.activation_bytes = list_of(root, "activation_bytes");
  if (root.has("slowdown")) costs.terms.slowdown = root["slowdown"].amount();
  if (root.has("send_share")) costs.terms.send_share = root["send_share"].amount();
  if (root.has("per_step")) costs.terms.per_step = root["per_step"].amount();
  return costs;
}

}  // namespace penstock
