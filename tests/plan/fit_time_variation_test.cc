#include "penstock/plan/fit_time_variation.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/planner.h"
#include "tests/base/error_text.h"
#include "tests/plan/small_costs.h"

namespace penstock::fit_time_variation_test {
namespace {

Plan plan_of(const LayerCosts& costs, const char* schedule) { return make_plan(costs, {{schedule}, {}}).plan; }

TEST(Predict, equals_the_prediction_of_the_plan) {
  for (const double time_variation : {0.0, 0.3}) {
    LayerCosts costs = even_layers();
    costs.time_variation = time_variation;
    const Plan plan = make_plan(costs).plan;
    EXPECT_EQ(predict(plan, costs), plan.prediction);
    for (LayerCost& layer : costs.layers) layer.forward = layer.input_grad = layer.weight_grad = 2;
    EXPECT_DOUBLE_EQ(predict(plan, costs).makespan, 2 * plan.prediction.makespan);
  }
}

TEST(Predict, refuses_costs_of_another_network) {
  LayerCosts costs = even_layers();
  const Plan plan = make_plan(costs).plan;
  const auto complaint_of = [&] { return test::error_text<ConfigError>([&] { predict(plan, costs); }); };
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

TEST(FittedTimeVariation, is_recovered_from_simulated_steps) {
  LayerCosts costs = even_layers();
  for (const double time_variation : {0.05, 0.2, 0.4}) {
    costs.time_variation = time_variation;
    std::vector<MeasuredStep> steps;
    for (const char* schedule : {"1f1b", "zb-h1", "gpipe"}) {
      const Plan plan = plan_of(even_layers(), schedule);
      steps.push_back({plan, predict(plan, costs).makespan});
    }
    EXPECT_NEAR(fitted_time_variation(even_layers(), steps), time_variation, 0.01);
    for (MeasuredStep& step : steps) step.makespan = 1;
    EXPECT_EQ(fitted_time_variation(even_layers(), steps), 0) << "shorter than without any";
    for (MeasuredStep& step : steps) step.makespan = 1e6;
    EXPECT_EQ(fitted_time_variation(even_layers(), steps), 0.5) << "the most";
  }
}

}  // namespace
}  // namespace penstock::fit_time_variation_test
