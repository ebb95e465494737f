// Measures a pipeline: recorded steps, times of layers, and peaks of activations.
//
//   Profiler profiler(pipeline);
//   profiler.clear();                                 // after the warm-up
//   ... train_step ...
//   std::cout << to_text(account(profiler.trace()));  // trace/account.h
#pragma once

#include <span>
#include <string>
#include <vector>

#include "penstock/pipeline/pipeline.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/rank/result.h"
#include "penstock/trace/recorder.h"

namespace penstock {

/// The result of Profiler::time_layers. Times are in milliseconds.
struct TimedSteps {
  /// Steps that time_layers() runs before the steps that it times: the warm-up, which is the first step of the trace,
  /// and which accounts therefore leave out (trace/account.h).
  static constexpr int untimed = 1;

  /// The costs of the schedule that ran, for its mean micro-batch, which counts as one sample: medians over steps of
  /// means over micro-batches. As in measured_costs(), a B that is not split counts as input_grad, with weight_grad 0.
  /// A message has a latency, and its bytes cost nothing. The members that one schedule does not show have their
  /// defaults. The layers are in the order of the graph.
  LayerCosts costs;
  double step = 0;  // median makespan
};

/// The median of every time over runs of the same network and schedule; the other members come from the first run.
TimedSteps median_of(std::span<const TimedSteps> runs);

/// The text form, for the other ranks. timed_steps_from(to_text(x)) == x. Throws DataError like write_layer_costs().
std::string to_text(const TimedSteps& steps);
TimedSteps timed_steps_from(const std::string& text);

/// The names of the layers of each stage, in the order of the graph.
StageLayers layers_by_stage(const StagedGraph& staged);

/// What a pipeline has measured, and measurements that it makes. Every call waits for all submitted steps. Throws what
/// a failed step threw. Not thread-safe, like the pipeline, which must outlive it.
class Profiler {
 public:
  explicit Profiler(Pipeline& pipeline);

  /// The recorded spans of the newest steps of all ranks, on the main process; no ranks on the others. Collective.
  Trace trace();
  /// Discards the spans that this process has recorded.
  void clear();
  /// Runs steps + TimedSteps::untimed training steps and returns the time of every layer in the last `steps`, the same
  /// on every process. The measurement costs about a microsecond per layer. The steps update the parameters.
  /// Collective. Throws DataError for names of layers that a cost file cannot hold (docs/cost_file.md).
  TimedSteps time_layers(const BatchTensors& inputs, const BatchTensors& targets, int steps);

  /// Peak activations of this process's ranks.
  std::vector<RankPeak> local_peaks();
  /// Peak activations of all ranks, on the main process; empty on the others. Collective.
  std::vector<RankPeak> peaks();
  /// By stage, the bytes of the activations of one micro-batch in the training steps after the first; the largest of
  /// all replicas; 0 before the second step. The same on every process. Collective. Throws ConfigError without
  /// PipelineOptions::count_bytes.
  std::vector<StageBytes> activation_bytes();

 private:
  Pipeline& pipeline_;
  PipelineImpl& impl_;
};

}  // namespace penstock
