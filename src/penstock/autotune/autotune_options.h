// Settings of measurements that decide options of a pipeline.
#pragma once

#include <string>

#include "penstock/autotune/tuning_cache.h"
#include "penstock/model/batch_tensors.h"
#include "penstock/rank/optimizer.h"

namespace penstock {

/// How profile() measures the costs of layers.
struct ProfileOptions {
  /// Timed steps of each pipeline in each pass, after some that are not timed. Where steps are so long that a pass would
  /// take more than three seconds, fewer steps with fewer micro-batches.
  int steps = 4;
  /// Passes over all pipelines are repeated for this time, with at least one pass. The speed of a shared machine
  /// changes within seconds, so that pipelines can only be compared over several passes.
  double passes_ms = 3000;
  OptimizerFactory optimizer = {};  // the optimiser whose step is timed; none: plain SGD
  bool slowdown_under_load = true;  // whether to run the last of profiled_steps; the schedule "auto" does not need it
};

/// Limits of a comparison of measured steps (compare_steps).
struct ComparisonOptions {
  int finalists = 6;        // candidates whose steps are measured, at most; 1: the prediction decides
  double budget_ms = 5000;  // no further round begins after this time, if there were five
  /// Nothing begins that would end after this time: after the first two candidates, that ends even the first round. The
  /// schedule "auto" ends ten seconds after its own beginning, if that is earlier.
  double most_ms = 5000;
};

struct AutotuneOptions {
  /// A training batch: the network's inputs, and their targets, which training steps need. Kernels::tuned and the
  /// partition "time" measure with the inputs on the main process only; the other processes need their shapes and
  /// dtypes.
  BatchTensors sample = {};
  BatchTensors sample_targets = {};
  /// Costs of the layers as the text of a cost file (docs/cost_file.md). The schedule "auto" plans with them and
  /// measures no layers. Empty: profile() measures the costs.
  std::string layer_costs = "";
  /// The devices of the world's ranks as the text of a cluster file: its first devices, in the order of world ranks.
  /// The schedule "auto" then expects ranks to be as fast as it says, and messages to take what its links say. Empty:
  /// ranks are equally fast.
  std::string cluster = "";
  ProfileOptions profile = {};        // of the schedule "auto"; all values of m share passes_ms
  ComparisonOptions comparison = {};  // likewise
  /// Where measurements are kept for later runs of the same job. The default is no cache.
  TuningCache cache = {};
};

}  // namespace penstock
