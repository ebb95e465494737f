#include "penstock/plan/fit_time_variation.h"

#include "penstock/plan/planner.h"

namespace penstock {

double fitted_time_variation(const LayerCosts& costs, std::span<const MeasuredStep> steps) {
  LayerCosts varied = costs;
  return fitted_time_variation(
      [&](const Plan& plan, double time_variation) {
        varied.time_variation = time_variation;
        return predict(plan, varied).makespan;
      },
      steps);
}

double fitted_time_variation(const std::function<double(const Plan& plan, double time_variation)>& predicted,
                             std::span<const MeasuredStep> steps) {
  constexpr double most = 0.5;
  constexpr int halvings = 12;
  const auto is_short = [&](double time_variation) {  // the predicted steps are shorter than the measured ones
    double product = 1;
    for (const MeasuredStep& step : steps) {
      const double makespan = predicted(step.plan, time_variation);
      if (makespan > 0 && step.makespan > 0) product *= makespan / step.makespan;
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
