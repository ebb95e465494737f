#include "penstock/schedule/stage_costs.h"

#include <string_view>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// Up to this value, sums over the largest schedules stay finite, and exact enough to compare.
constexpr double highest_cost = 1e15;

void require_cost(std::string_view what, double cost) {
  require<ConfigError>(cost >= 0 && cost <= highest_cost, "a cost for ", what, " is ", cost, ": costs go from 0 to ",
                       highest_cost);
}

void require_cost_per_stage(std::string_view what, const std::vector<double>& given, int stages) {
  require<ConfigError>(given.size() == 1 || given.size() == static_cast<std::size_t>(stages), "there are ",
                       given.size(), " costs for ", what, " and ", stages, " stages: pass one for all or one for each");
  for (const double cost : given) require_cost(what, cost);
}

}  // namespace

void require_costs_fit(const StageCosts& costs, int stages) {
  require_cost_per_stage("F", costs.forward, stages);
  require_cost_per_stage("I", costs.input_grad, stages);
  require_cost_per_stage("W", costs.weight_grad, stages);
  require_cost_per_stage("update", costs.update, stages);
  require_cost_per_stage("the cache saving of F", costs.forward_cache_saving, stages);
  require_cost_per_stage("the cache saving of I", costs.input_grad_cache_saving, stages);
  require_cost_per_stage("the cache saving of W", costs.weight_grad_cache_saving, stages);
  if (!costs.weight_grad_fused.empty()) require_cost_per_stage("a fused W", costs.weight_grad_fused, stages);
  if (!costs.backward.empty()) require_cost_per_stage("B", costs.backward, stages);
  if (!costs.activation_bytes.empty())
    require_cost_per_stage("the bytes of activations", costs.activation_bytes, stages);
  require_cost("a message", costs.message);
  require<ConfigError>(costs.message_gap >= 0 && costs.message_gap <= costs.message, "a message occupies its link for ",
                       costs.message_gap, " of the ", costs.message,
                       " that it takes: pass a part of its cost, from 0 to all of it");
  require_cost("an instruction's overhead", costs.overhead);
  require<ConfigError>(costs.weight_share >= 0 && costs.weight_share <= 1, "the weight share is ", costs.weight_share,
                       ": it is a part of a micro-batch's activations, from 0 to 1");
}

}  // namespace penstock
