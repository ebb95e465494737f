#include "penstock/plan/fit_time_variation.h"

#include "penstock/plan/planner.h"

namespace penstock {

double fitted_time_variation(const LayerCosts& costs, std::span<const MeasuredStep> steps) {
  constexpr double most = 0.5;
  constexpr int halvings = 12;
  const auto is_short = [&](double time_variation) {  // the predicted steps are shorter than the measured ones
    LayerCosts varied = costs;
    varied.time_variation = time_variation;
    double product = 1;
    for (const MeasuredStep& step : steps) {
      const double predicted = predict(step.plan, varied).makespan;
      if (predicted > 0 && step.makespan > 0) product *= predicted / step.makespan;
    }
    return product < 1;
  };
  double low = 0, high = most;
  if (!is_short(low)) return low;
  if (is_short(high)) return high;
  for (int i = 0; i < halvings; ++i) {
    const double middle = (low + high) / 2;
    (is_short(middle) ? low : high) = middle;
  }
  return high;
}

}  // namespace penstock
