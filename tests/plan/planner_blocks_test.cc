// Plans of networks with blocks: stages begin between them.
#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/plan_report.h"
#include "penstock/plan/planner.h"
#include "tests/base/error_text.h"
#include "tests/plan/small_costs.h"

namespace penstock::planner_blocks_test {
namespace {

/// even_layers() as an embedding, two blocks of three layers, and a head as heavy as three layers.
LayerCosts blocks_and_head() {
  LayerCosts costs = even_layers();
  for (std::size_t layer = 1; layer < 7; ++layer) costs.layers[layer].block = layer < 4 ? "block0" : "block1";
  costs.layers[7].forward = costs.layers[7].input_grad = costs.layers[7].weight_grad = 3;
  return costs;
}

TEST(PlannerBlocks, stages_begin_between_blocks) {
  const LayerCosts costs = blocks_and_head();
  const Planned planned = make_plan(costs, {.schedules = {"1f1b"}});
  EXPECT_EQ(planned.plan.stages[1], (std::vector<std::string>{"layer4", "layer5", "layer6", "layer7"}));
  EXPECT_EQ(planned.plan.prediction, predict(planned.plan, costs));
  EXPECT_TRUE(test::says(explanation(planned), " Stages: layer0, block0 | block1, layer7."));
  EXPECT_EQ(explanation(make_plan(even_layers())).find("Stages:"), std::string::npos);
  // Within a cap that only a cut inside a block would meet, nothing fits.
  LayerCosts small = costs;
  small.memory_cap_bytes = 460;
  EXPECT_TRUE(test::says(test::error_text<ScheduleError>([&] { make_plan(small, {.schedules = {"1f1b"}}); }),
                         "the smallest cap that would do is 480 bytes"));
}

TEST(PlannerBlocks, more_stages_than_blocks_cut_them) {
  LayerCosts costs = blocks_and_head();
  const Planned planned = make_plan(costs, {.schedules = {"interleaved"}});
  EXPECT_EQ(planned.left_out,
            (std::vector<std::string>{"interleaved with 3 or more chunks per rank: 4 blocks and layers "
                                      "between them are too few"}));
  costs.ranks = 5;
  const Planned cut = make_plan(costs, {.schedules = {"1f1b"}});
  EXPECT_EQ(cut.left_out,
            (std::vector<std::string>{
                "partitions that cut no block: 4 blocks and layers between them are too few for 5 stages"}));
  EXPECT_EQ(cut.plan.stages.size(), 5U);
  EXPECT_EQ(make_plan(blocks_and_head(), {.schedules = {"interleaved"}, .chunks = 3}).plan.stages.size(), 6U)
      << "a given number of chunks cuts blocks, too";
}

}  // namespace
}  // namespace penstock::planner_blocks_test
