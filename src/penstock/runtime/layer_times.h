// The times of a pipeline's layers, measured while all ranks work.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock {

/// One layer or function of the network, in milliseconds for one micro-batch: medians over steps of means over
/// micro-batches.
struct LayerTimes {
  std::string name;
  double forward = 0;
  double backward = 0;     // B; I where the schedule splits
  double weight_grad = 0;  // W, 0 where the schedule does not split
  std::int64_t output_bytes = 0;
  std::int64_t parameter_bytes = 0;  // of parameters that train
};

/// The result of Pipeline::time_layers. Times are in milliseconds.
struct TimedSteps {
  std::vector<LayerTimes> layers;   // in the order of the graph
  double message = 0;               // median transit time of a message; 0 where there are none
  double instruction_overhead = 0;  // time of a B in addition to its layers, mean over stages
  double update_per_byte = 0;       // time of the STEP per byte of parameters
  double step = 0;                  // median makespan
  std::int64_t cache_bytes = 0;     // cache per rank (world/cache_share.h); 0 on devices
};

/// The median of every value over runs of the same network.
TimedSteps median_of(std::span<const TimedSteps> runs);

/// The text form, for the other ranks. REQUIRES: names of layers contain no line break.
std::string to_text(const TimedSteps& steps);
TimedSteps timed_steps_from(const std::string& text);

}  // namespace penstock
