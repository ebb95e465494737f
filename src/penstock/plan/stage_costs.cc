#include "penstock/plan/stage_costs.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"

namespace penstock {
namespace {

using nlohmann::json;

constexpr const char* version_key = "penstock_costs";
constexpr std::array known_keys = {version_key, "forward", "input_grad", "weight_grad", "update", "message",
                                   "weight_share"};

double cost_of(const json& value, std::string_view key) {
  const double cost = value.is_number() ? value.get<double>() : -1;
  require<DataError>(std::isfinite(cost) && cost >= 0, "the costs' ", key, " has ", value.dump(),
                     ", which is no finite number >= 0");
  return cost;
}

std::vector<double> list_of(const json& costs, const char* key) {
  const auto found = costs.find(key);
  require<DataError>(found != costs.end(), "the costs have no ", key,
                     ": give a list of one number for all stages or one for each");
  require<DataError>(found->is_array() && !found->empty(), "the costs' ", key,
                     " is no list: give one number for all stages or one for each, as [1, 2]");
  std::vector<double> list;
  for (const json& value : *found) list.push_back(cost_of(value, key));
  return list;
}

void require_known_keys(const json& costs) {
  for (const auto& [key, value] : costs.items())
    require<DataError>(std::find(known_keys.begin(), known_keys.end(), key) != known_keys.end(), "the costs have '",
                       key, "', which is none of forward, input_grad, weight_grad, update, message and weight_share");
}

}  // namespace

Costs read_stage_costs(std::string_view text) {
  const json costs = json::parse(text, nullptr, false);
  require<DataError>(costs.is_object() && costs.contains(version_key), "this is no file of costs: a JSON object with ",
                     version_key, " = ", stage_costs_version, " is expected");
  require<DataError>(costs[version_key] == stage_costs_version, version_key, " is ", costs[version_key].dump(),
                     ", and this version reads ", stage_costs_version);
  require_known_keys(costs);
  return {.forward = list_of(costs, "forward"),
          .input_grad = list_of(costs, "input_grad"),
          .weight_grad = list_of(costs, "weight_grad"),
          .update = costs.contains("update") ? list_of(costs, "update") : std::vector<double>{0},
          .message = costs.contains("message") ? cost_of(costs["message"], "message") : 0,
          .weight_share = costs.contains("weight_share") ? cost_of(costs["weight_share"], "weight_share")
                                                         : Costs().weight_share};
}

}  // namespace penstock
