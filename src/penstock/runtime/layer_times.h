// What every layer of a pipeline takes while all ranks work.
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
  std::int64_t parameter_bytes = 0;  // that train
};

struct TimedSteps {
  std::vector<LayerTimes> layers;   // in the order of the graph
  double message = 0;               // median time of a message on its way; 0 where there are none
  double instruction_overhead = 0;  // what a B takes besides its layers, mean over stages
  double update_per_byte = 0;       // of parameters, in the STEP
  double step = 0;                  // median makespan
  std::int64_t cache_bytes = 0;     // that a rank has (world/cache_share.h); 0 on devices
};

/// Figure by figure, of runs of one network's layers.
TimedSteps median_of(std::span<const TimedSteps> runs);

/// The text form, for the other ranks; from_text(to_text(x)) == x up to the layers' names, which hold no line break.
std::string to_text(const TimedSteps& steps);
TimedSteps timed_steps_from(const std::string& text);

}  // namespace penstock
