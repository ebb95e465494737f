// Layer costs for the tests of this module.
#pragma once

#include <rapidcheck.h>

#include "penstock/plan/layer_costs.h"

namespace penstock {

/// Eight equal layers on two ranks, with 16 samples in 4 micro-batches. Each layer takes F = I = W = 1, and has 10
/// bytes of activations and 100 bytes of parameters.
inline LayerCosts even_layers() {
  LayerCosts costs{.time_unit = "ms",
                   .ranks = 2,
                   .samples = 16,
                   .micro_batch_size = 4,
                   .micro_batches = {},
                   .link = {.bytes_per_unit = 100, .latency = 0},
                   .weight_share = 1,
                   .instruction_overhead = 0,
                   .memory_cap_bytes = {},
                   .layers = {}};
  for (int layer = 0; layer < 8; ++layer)
    costs.layers.push_back({"layer" + std::to_string(layer), 1, 1, 1, 10, 100, 0});
  return costs;
}

/// Random costs. They are small integers or simple fractions, so that sums are exact.
inline LayerCosts any_costs(int most_layers) {
  const auto some = [](int below) { return static_cast<double>(*rc::gen::inRange(0, below)); };
  LayerCosts costs{.time_unit = "us",
                   .ranks = *rc::gen::inRange(1, 4),
                   .samples = 12,
                   .micro_batch_size = 1,
                   .micro_batches = {*rc::gen::element(1, 2, 3, 4), 6},
                   .link = {.bytes_per_unit = some(3), .latency = some(3)},
                   .weight_share = *rc::gen::element(1.0, 0.5, 0.25),
                   .instruction_overhead = some(2) / 4,
                   .memory_cap_bytes = {},
                   .layers = {}};
  const int n = *rc::gen::inRange(costs.ranks, std::max(costs.ranks, most_layers) + 1);
  for (int layer = 0; layer < n; ++layer)
    costs.layers.push_back({"layer" + std::to_string(layer), some(9), some(9), some(9), some(20), some(40), some(5)});
  for (LayerCost& layer : costs.layers) {
    if (*rc::gen::inRange(0, 4) == 0) layer.weight_grad_fused = some(9);
    if (*rc::gen::inRange(0, 4) == 0) layer.backward = some(18);
    if (*rc::gen::inRange(0, 4) == 0) layer.update = some(9);
  }
  return costs;
}

}  // namespace penstock
