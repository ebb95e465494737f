#include "penstock/plan/fit_spread.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/planner.h"
#include "tests/base/complaint.h"
#include "tests/plan/small_costs.h"

namespace penstock {
namespace {

Plan plan_of(const LayerCosts& costs, const char* schedule) { return make_plan(costs, {{schedule}, {}}).plan; }

TEST(Foretell, is_the_plans_own_prediction) {
  for (const double spread : {0.0, 0.3}) {
    LayerCosts costs = even_layers();
    costs.spread = spread;
    const Plan plan = make_plan(costs).plan;
    EXPECT_EQ(foretell(plan, costs), plan.prediction);
    for (LayerCost& layer : costs.layers) layer.forward = layer.input_grad = layer.weight_grad = 2;
    EXPECT_DOUBLE_EQ(foretell(plan, costs).makespan, 2 * plan.prediction.makespan);
  }
}

TEST(Foretell, is_for_one_network) {
  LayerCosts costs = even_layers();
  const Plan plan = make_plan(costs).plan;
  const auto complaint_of = [&] { return test::complaint<ConfigError>([&] { foretell(plan, costs); }); };
  costs.layers[2].name = "other";
  EXPECT_EQ(complaint_of(),
            "the plan has 'layer2' as layer 2, and the costs have 'other': they are for different "
            "networks");
  costs.layers.resize(2);
  EXPECT_EQ(complaint_of(),
            "the plan has 'layer2' as layer 2, and the costs have no more layers: they are for "
            "different networks");
  costs = even_layers();
  costs.layers.push_back({"layer8", 1, 1, 1, 10, 100, 0});
  EXPECT_EQ(complaint_of(), "the plan has 8 layers, and the costs have 9: they are for different networks");
}

TEST(FittedSpread, is_found_again_in_the_steps_that_it_makes) {
  LayerCosts costs = even_layers();
  for (const double spread : {0.05, 0.2, 0.4}) {
    costs.spread = spread;
    std::vector<MeasuredStep> steps;
    for (const char* schedule : {"1f1b", "zb-h1", "gpipe"}) {
      const Plan plan = plan_of(even_layers(), schedule);
      steps.push_back({plan, foretell(plan, costs).makespan});
    }
    EXPECT_NEAR(fitted_spread(even_layers(), steps), spread, 0.01);
    for (MeasuredStep& step : steps) step.makespan = 1;
    EXPECT_EQ(fitted_spread(even_layers(), steps), 0) << "shorter than without any";
    for (MeasuredStep& step : steps) step.makespan = 1e6;
    EXPECT_EQ(fitted_spread(even_layers(), steps), 0.5) << "the most";
  }
}

}  // namespace
}  // namespace penstock
