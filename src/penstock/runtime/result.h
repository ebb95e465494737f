// What a step or an evaluation comes to: known on every rank, when it is known.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"
#include "penstock/runtime/batch_outputs.h"
#include "penstock/runtime/metric.h"

namespace penstock {

/// What the ranks of this process did in a training step.
struct StepUse {
  /// The share of their time that they were idle, from the begin of the first compute instruction to the end of the last instruction.
  /// Under threads, where all ranks are here: the bubble of the makespan.
  double idle = 0;
  int peak_activations = 0;  // most live micro-batches of a rank, since the pipeline was made
};

struct StepOptions {
  bool keep_outputs = false;  // StepResult::outputs() is wanted; costs a copy of them
};

/// Shared by the ranks that write it and the caller who asks. Thread-safe.
class StepState;

/// The outcome of one batch. Copyable; asking waits until it is known, or throws the RankFailure that ended it.
class StepResult {
 public:
  explicit StepResult(std::shared_ptr<StepState> state) : state_(std::move(state)) {}

  /// The loss of the whole batch, as the pipeline's reduction makes it.
  double loss() const;
  /// What a mean of the loss divides by: samples, or tokens that count.
  double weight() const;
  /// The sum of all samples' losses, whatever the reduction: over several batches, all sums over all weights.
  double loss_sum() const;
  /// The 2-norm of all gradients before they were clipped. Throws ConfigError where PipelineOptions::clip_norm is none,
  /// and for an evaluation.
  double gradient_norm() const;
  /// Whether the update was left out because a gradient was not finite: Precision::fp16 alone does so. Of
  /// forward_backward(): known after step(). Waits as wait().
  bool update_skipped() const;
  /// Whether there is one; waits for the step. Of calls that gather gradients, the one that updates has it.
  bool has_gradient_norm() const;
  /// Metric sums over the whole batch, in the order in which they were asked for.
  const std::vector<double>& metrics() const;
  /// True when asking would not wait.
  bool ready() const;
  /// Waits until every local rank is through with the step, not only until the loss is known.
  void wait() const;
  /// Waits as wait() does.
  StepUse use() const;
  /// With StepOptions::keep_outputs, on processes that hold the last stage and have rows of this batch; otherwise none.
  /// Waits as wait() does.
  std::optional<BatchOutputs> outputs() const;

 private:
  std::shared_ptr<StepState> state_;
};

}  // namespace penstock
