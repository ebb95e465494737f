#include "penstock/plan/scaling.h"

#include <algorithm>
#include <cmath>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {

std::vector<ScalePoint> scaling_curve(const LayerCosts& costs, const PlanConstraints& constraints,
                                      const std::vector<int>& counts) {
  require<ConfigError>(constraints.cluster.has_value(), "a scaling curve needs a cluster: pass its devices and links");
  std::vector<ScalePoint> points;
  for (const int devices : counts) {
    PlanConstraints with = constraints;
    with.cluster = first_devices(*constraints.cluster, devices);
    const Planned planned = make_plan(costs, with);
    ScalePoint point{.devices = devices, .chosen = planned.candidates.front()};
    point.step = point.chosen.prediction.makespan;
    point.samples_per_unit = static_cast<double>(costs.samples) / point.step;
    const double per_device = point.samples_per_unit / devices;
    point.efficiency = points.empty() ? 1 : per_device * points.front().devices / points.front().samples_per_unit;
    points.push_back(point);
  }
  return points;
}

std::string to_table(const std::vector<ScalePoint>& points) {
  constexpr double longest_bar = 40;
  double most = 0;
  for (const ScalePoint& point : points) most = std::max(most, point.samples_per_unit);
  std::vector<std::vector<std::string>> rows{
      {"devices", "p", "d", "v", "m", "schedule", "step", "samples/time", "efficiency", ""}};
  for (const ScalePoint& point : points) {
    const auto bar = static_cast<std::size_t>(std::lround(longest_bar * point.samples_per_unit / most));
    std::string drawn(bar, '#');
    drawn.resize(static_cast<std::size_t>(longest_bar), ' ');
    rows.push_back({std::to_string(point.devices), std::to_string(point.chosen.ranks),
                    std::to_string(point.chosen.replicas), std::to_string(point.chosen.chunks),
                    std::to_string(point.chosen.micro_batches), point.chosen.schedule, fixed(point.step, 3),
                    fixed(point.samples_per_unit, 4), percent(point.efficiency), drawn});
  }
  return aligned(rows);
}

}  // namespace penstock
