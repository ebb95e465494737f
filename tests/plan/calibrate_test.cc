#include "penstock/plan/layer_sums.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "tests/plan/small_costs.h"

namespace penstock::calibrate_test {
namespace {

void expect_near(const std::vector<double>& a, const std::vector<double>& b) {
  RC_ASSERT(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) RC_ASSERT(std::abs(a[i] - b[i]) < 1e-9 * (1 + b[i]));
}

TEST(Calibrate, the_partition_of_the_run_has_the_measured_costs) {
  EXPECT_TRUE(rc::check("stage_costs(calibrated) == measured", [] {
    LayerCosts costs = any_costs(9);
    const auto n = static_cast<int>(costs.layers.size());
    costs.ranks = *rc::gen::inRange(1, n + 1);
    costs.samples = 12 * *rc::gen::inRange(1, 4);
    const int m = *rc::gen::element(1, 3, 4);
    const auto name = *rc::gen::element<std::string>("1f1b", "1f1b-early", "gpipe");
    Schedule instructions = generate(name, {.ranks = costs.ranks, .micro_batches = m});
    if (*rc::gen::arbitrary<bool>()) instructions = fuse_w(instructions);
    Stages stages;
    for (int s = 0; s < costs.ranks; ++s) stages.push_back({s, s + 1 < costs.ranks ? s + 1 : n});
    const bool is_split = gradient_instructions(instructions).unsplit < 1;
    const auto some = [&] {
      std::vector<double> list;
      for (int s = 0; s < costs.ranks; ++s) list.push_back(*rc::gen::inRange(0, 40) / 4.0);
      return list;
    };
    StageCosts measured;
    measured.forward = some();
    measured.input_grad = some();
    measured.weight_grad = is_split ? some() : std::vector<double>(stages.size(), 0);
    measured.update = some();
    measured.message = costs.ranks > 1 ? *rc::gen::inRange(0, 9) / 4.0 : 0;

    const LayerCosts fitted = calibrated(costs, {instructions, stages, measured});
    const StageCosts found = stage_costs(LayerSums(fitted, m), instructions.rank_of_stage, stages);
    expect_near(found.forward, measured.forward);
    RC_ASSERT(std::abs(found.message - measured.message) < 1e-9);
    expect_near(simulate(instructions, found).busy, simulate(instructions, measured).busy);
    if (is_split) expect_near(found.input_grad, measured.input_grad);
  }));
}

TEST(Calibrate, the_unit_and_the_micro_batch_size_of_the_costs_do_not_matter) {
  LayerCosts costs = even_layers();
  costs.layers[0].weight_grad_fused = 0.5;
  costs.layers[3].backward = 1.5;
  const Schedule instructions = generate("1f1b", {.ranks = 2, .micro_batches = 4});
  const Stages stages{{0, 3}, {3, 8}};
  const StageCosts measured{
      .forward = {30, 40}, .input_grad = {50, 60}, .weight_grad = {0, 0}, .update = {7, 8}, .message = 2};
  LayerCosts other = costs;
  other.time_unit = "us";
  other.samples *= 2;
  other.instruction_overhead = 3;
  other.link = {.bytes_per_unit = 0, .latency = 70};
  for (LayerCost& layer : other.layers) {
    layer.forward *= 1000;
    layer.input_grad *= 1000;
    layer.weight_grad *= 1000;
    if (layer.weight_grad_fused) *layer.weight_grad_fused *= 1000;
    if (layer.backward) *layer.backward *= 1000;
    layer.activation_bytes /= 2;
  }
  const LayerCosts a = calibrated(costs, {instructions, stages, measured});
  const LayerCosts b = calibrated(other, {instructions, stages, measured});
  EXPECT_EQ(stage_costs(LayerSums(b, 4), instructions.rank_of_stage, stages).message, 2);
  for (std::size_t layer = 0; layer < a.layers.size(); ++layer) {
    EXPECT_DOUBLE_EQ(a.layers[layer].weight_grad, b.layers[layer].weight_grad);
    EXPECT_DOUBLE_EQ(a.layers[layer].backward.value_or(0), b.layers[layer].backward.value_or(0));
    EXPECT_DOUBLE_EQ(a.layers[layer].weight_grad_fused.value_or(0), b.layers[layer].weight_grad_fused.value_or(0));
    EXPECT_EQ(a.layers[layer].activation_bytes, b.layers[layer].activation_bytes);
  }
  EXPECT_EQ(a.time_unit, "ms");
}

}  // namespace
}  // namespace penstock::calibrate_test
