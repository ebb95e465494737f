// The times of a pipeline's layers, measured while all ranks work.
#pragma once

#include <span>
#include <string>

#include "penstock/plan/layer_costs.h"

namespace penstock {

/// The result of Pipeline::time_layers. Times are in milliseconds.
struct TimedSteps {
  /// The costs of the schedule that ran, for its mean micro-batch, which counts as one sample: medians over steps of
  /// means over micro-batches. As in measured_costs(), a B that is not split counts as input_grad, with weight_grad 0.
  /// A message has a latency, and its bytes cost nothing. The members that one schedule does not show have their
  /// defaults. The layers are in the order of the graph.
  LayerCosts costs;
  double step = 0;  // median makespan
};

/// The median of every time over runs of the same network and schedule; the other members are those of the first run.
TimedSteps median_of(std::span<const TimedSteps> runs);

/// The text form, for the other ranks. timed_steps_from(to_text(x)) == x. Throws DataError like write_layer_costs().
std::string to_text(const TimedSteps& steps);
TimedSteps timed_steps_from(const std::string& text);

}  // namespace penstock
