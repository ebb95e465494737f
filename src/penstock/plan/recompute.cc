#include "penstock/plan/recompute.h"

#include <algorithm>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// The block that begins at layer `begin`, or the layer itself outside of blocks; not beyond `end`.
LayerRange block_from(const LayerCosts& costs, int begin, int end) {
  const std::string& block = costs.layers[static_cast<std::size_t>(begin)].block;
  int next = begin + 1;
  while (!block.empty() && next < end && costs.layers[static_cast<std::size_t>(next)].block == block) ++next;
  return {begin, next};
}

/// Calls `call` with each block of `range` and whether it is recomputed.
template <class Call>
void for_each_block(const LayerCosts& costs, const Recomputed& recomputed, LayerRange range, Call&& call) {
  for (int begin = range.begin; begin < range.end;) {
    const LayerRange block = block_from(costs, begin, range.end);
    call(block, !recomputed.empty() && recomputed[static_cast<std::size_t>(begin)]);
    begin = block.end;
  }
}

template <class Member>
double sum_of(const LayerCosts& costs, LayerRange range, Member member) {
  double sum = 0;
  for (int at = range.begin; at < range.end; ++at) sum += costs.layers[static_cast<std::size_t>(at)].*member;
  return sum;
}

double input_bytes(const LayerCosts& costs, LayerRange block) {
  return block.begin > 0 ? costs.layers[static_cast<std::size_t>(block.begin - 1)].boundary_bytes : 0;
}

LayerRange all_of(const LayerCosts& costs) { return {0, static_cast<int>(costs.layers.size())}; }

}  // namespace

LayerCosts with_recompute(const LayerCosts& costs, const Recomputed& recomputed) {
  LayerCosts changed = costs;
  for_each_block(costs, recomputed, all_of(costs), [&](LayerRange block, bool is_recomputed) {
    if (!is_recomputed) return;
    for (int at = block.begin; at < block.end; ++at) {
      LayerCost& layer = changed.layers[static_cast<std::size_t>(at)];
      layer.input_grad += layer.forward;
      if (layer.input_grad_cached) *layer.input_grad_cached += layer.forward;
      if (layer.backward) *layer.backward += layer.forward;
      layer.activation_bytes = at == block.begin ? std::min(layer.activation_bytes, input_bytes(costs, block)) : 0;
    }
  });
  return changed;
}

double recompute_bytes(const LayerCosts& costs, const Recomputed& recomputed, LayerRange range) {
  double most = 0;
  for_each_block(costs, recomputed, range, [&](LayerRange block, bool is_recomputed) {
    if (is_recomputed) most = std::max(most, sum_of(costs, block, &LayerCost::activation_bytes));
  });
  return most;
}

bool recompute_one_more(const LayerCosts& costs, const std::vector<LayerRange>& ranges, Recomputed& recomputed) {
  if (recomputed.empty()) recomputed.assign(costs.layers.size(), false);
  LayerRange best;
  double best_rate = 0;
  for (const LayerRange& range : ranges)
    for_each_block(costs, recomputed, range, [&](LayerRange block, bool is_recomputed) {
      if (is_recomputed) return;
      const double saved = sum_of(costs, block, &LayerCost::activation_bytes) - input_bytes(costs, block);
      const double rate = saved / std::max(1e-12, sum_of(costs, block, &LayerCost::forward));
      if (saved <= 0 || rate <= best_rate) return;
      best = block;
      best_rate = rate;
    });
  for (int at = best.begin; at < best.end; ++at) recomputed[static_cast<std::size_t>(at)] = true;
  return best_rate > 0;
}

std::vector<std::string> names_of(const LayerCosts& costs, const Recomputed& recomputed) {
  std::vector<std::string> names;
  for_each_block(costs, recomputed, all_of(costs), [&](LayerRange block, bool is_recomputed) {
    const LayerCost& first = costs.layers[static_cast<std::size_t>(block.begin)];
    if (is_recomputed) names.push_back(first.block.empty() ? first.name : first.block);
  });
  return names;
}

Recomputed recomputed_of(const LayerCosts& costs, const std::vector<std::string>& names) {
  Recomputed recomputed;
  if (names.empty()) return recomputed;
  recomputed.assign(costs.layers.size(), false);
  for (const std::string& name : names) {
    bool is_known = false;
    for (std::size_t at = 0; at < costs.layers.size(); ++at) {
      const LayerCost& layer = costs.layers[at];
      if ((layer.block.empty() ? layer.name : layer.block) == name) recomputed[at] = is_known = true;
    }
    require<ConfigError>(is_known, "the plan recomputes '", name,
                         "', which is not a block or layer of the costs: they are for different networks");
  }
  return recomputed;
}

}  // namespace penstock
