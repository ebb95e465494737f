#include "penstock/plan/fit_spread.h"

#include "penstock/plan/planner.h"

namespace penstock {

double fitted_spread(const LayerCosts& costs, std::span<const MeasuredStep> steps) {
  constexpr double most = 0.5;
  constexpr int halvings = 12;
  const auto is_short = [&](double spread) {  // what is foretold with it
    LayerCosts varied = costs;
    varied.spread = spread;
    double product = 1;
    for (const MeasuredStep& step : steps) {
      const double foretold = foretell(step.plan, varied).makespan;
      if (foretold > 0 && step.makespan > 0) product *= foretold / step.makespan;
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
