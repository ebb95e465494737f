#include "penstock/runtime/layer_times.h"

#include <iomanip>
#include <limits>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/base/median.h"

namespace penstock {

TimedSteps median_of(std::span<const TimedSteps> runs) {
  TimedSteps middle = runs.front();
  const auto take = [&](auto&& figure_of) {
    std::vector<double> figures;
    for (const TimedSteps& run : runs) figures.push_back(figure_of(run));
    return median(figures);
  };
  for (std::size_t n = 0; n < middle.layers.size(); ++n)
    for (double LayerTimes::*figure : {&LayerTimes::forward, &LayerTimes::backward, &LayerTimes::weight_grad})
      middle.layers[n].*figure = take([&](const TimedSteps& run) { return run.layers[n].*figure; });
  for (double TimedSteps::*figure :
       {&TimedSteps::message, &TimedSteps::instruction_overhead, &TimedSteps::update_per_byte, &TimedSteps::step})
    middle.*figure = take([&](const TimedSteps& run) { return run.*figure; });
  return middle;
}

std::string to_text(const TimedSteps& steps) {
  std::ostringstream text;
  text << std::setprecision(std::numeric_limits<double>::max_digits10) << steps.message << " "
       << steps.instruction_overhead << " " << steps.update_per_byte << " " << steps.step << " " << steps.cache_bytes
       << "\n";
  for (const LayerTimes& layer : steps.layers)
    text << layer.forward << " " << layer.backward << " " << layer.weight_grad << " " << layer.output_bytes << " "
         << layer.parameter_bytes << " " << layer.name << "\n";
  return text.str();
}

TimedSteps timed_steps_from(const std::string& text) {
  TimedSteps steps;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::istringstream first(line);
  first >> steps.message >> steps.instruction_overhead >> steps.update_per_byte >> steps.step >> steps.cache_bytes;
  require<InternalError>(!first.fail(), "times of layers begin with '", line, "'");
  while (std::getline(lines, line)) {
    std::istringstream fields(line);
    LayerTimes layer;
    fields >> layer.forward >> layer.backward >> layer.weight_grad >> layer.output_bytes >> layer.parameter_bytes;
    require<InternalError>(!fields.fail(), "times of layers have the line '", line, "'");
    fields.get();
    std::getline(fields, layer.name);
    steps.layers.push_back(std::move(layer));
  }
  return steps;
}

}  // namespace penstock
