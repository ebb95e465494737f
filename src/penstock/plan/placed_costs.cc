#include "penstock/plan/placed_costs.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/plan/site.h"

namespace penstock {

StageCosts placed_costs(const StageCosts& costs, const Schedule& schedule, const Cluster& cluster,
                        const OnCluster& options) {
  require_single_owner(schedule, "a placement on a cluster");
  require_costs_fit(costs, schedule.stage_count());
  const Placement placement = listed_placement(cluster, {schedule.rank_count(), options.replicas});
  LayerCosts unit;
  unit.time_unit = options.time_unit;
  const Site site(cluster, placement, unit);

  StageCosts placed = costs;
  placed.reduce.clear();
  const auto count = static_cast<std::size_t>(schedule.stage_count());
  for (std::vector<double>* list : {&placed.forward, &placed.input_grad, &placed.weight_grad, &placed.update,
                                    &placed.weight_grad_fused, &placed.backward, &placed.forward_cache_saving,
                                    &placed.input_grad_cache_saving, &placed.weight_grad_cache_saving}) {
    if (list->empty()) continue;
    std::vector<double> times;
    for (std::size_t s = 0; s < count; ++s)
      times.push_back(value_of_stage(*list, s) * site.slowness(schedule.rank_of_stage[s]));
    *list = times;
  }
  const auto message = [&](std::size_t from, std::size_t to) -> MessageCost {
    if (schedule.rank_of_stage[from] == schedule.rank_of_stage[to]) return {};
    return message_over(site.link(schedule.rank_of_stage[from], schedule.rank_of_stage[to]), options.message_bytes);
  };
  for (std::size_t s = 0; s < count; ++s) {
    placed.reduce.push_back(site.reduction(schedule.rank_of_stage[s], options.gradient_bytes));
    if (s == 0) continue;
    placed.messages_forward.push_back(message(s - 1, s));
    placed.messages_backward.push_back(message(s, s - 1));
  }
  return placed;
}

}  // namespace penstock
