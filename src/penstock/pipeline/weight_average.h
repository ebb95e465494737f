// An exponential moving average of a pipeline's trained parameters.
#pragma once

#include "penstock/pipeline/pipeline.h"

namespace penstock {

/// Each update sets the average to decay * average + (1 - decay) * parameter. Checkpoints contain the average: make
/// this object before Pipeline::load(). Every call is collective. Not thread-safe, like the pipeline, which must
/// outlive it. A pipeline has one average, and keeps it up to date until the pipeline ends.
class WeightAverage {
 public:
  /// The average starts from the present parameters. Throws ConfigError unless 0 <= decay < 1.
  WeightAverage(Pipeline& pipeline, double decay);

  /// True: evaluate(), infer(), state_dict() and the like use the average instead of the parameters, until use(false).
  /// While the average is used, training throws ConfigError. use() throws ConfigError while gradients await their
  /// update.
  void use(bool average);
  /// Pipeline::state_dict() with the average instead of the trained parameters: on the main process; empty on the
  /// others.
  StateDict state_dict();

 private:
  Pipeline& pipeline_;
};

}  // namespace penstock
