#include "penstock/runtime/layer_times.h"

#include <iomanip>
#include <limits>
#include <sstream>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/median.h"

namespace penstock {

TimedSteps median_of(std::span<const TimedSteps> runs) {
  TimedSteps middle = runs.front();
  const auto take = [&](auto&& time_of) {
    std::vector<double> times;
    for (const TimedSteps& run : runs) times.push_back(time_of(run));
    return median(times);
  };
  for (std::size_t n = 0; n < middle.costs.layers.size(); ++n)
    for (double LayerCost::*time :
         {&LayerCost::forward, &LayerCost::input_grad, &LayerCost::weight_grad, &LayerCost::update})
      middle.costs.layers[n].*time = take([&](const TimedSteps& run) { return run.costs.layers[n].*time; });
  middle.costs.link.latency = take([](const TimedSteps& run) { return run.costs.link.latency; });
  middle.costs.instruction_overhead = take([](const TimedSteps& run) { return run.costs.instruction_overhead; });
  middle.step = take([](const TimedSteps& run) { return run.step; });
  return middle;
}

std::string to_text(const TimedSteps& steps) {
  std::ostringstream text;
  text << std::setprecision(std::numeric_limits<double>::max_digits10) << steps.step << "\n";
  return text.str() + write_layer_costs(steps.costs);
}

TimedSteps timed_steps_from(const std::string& text) {
  TimedSteps steps;
  const std::size_t line = text.find('\n');
  std::istringstream first(text.substr(0, line));
  first >> steps.step;
  require<InternalError>(!first.fail() && line != std::string::npos, "times of layers begin with '", first.str(), "'");
  steps.costs = read_layer_costs(std::string_view(text).substr(line));
  return steps;
}

}  // namespace penstock
