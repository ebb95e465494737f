// The result of a step or an evaluation, available on every rank.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/base/split.h"
#include "penstock/base/tensor.h"
#include "penstock/rank/batch_outputs.h"
#include "penstock/rank/metric.h"

namespace penstock {

/// How busy the ranks of this process were in a training step.
struct StepStats {
  /// The idle share of their time, 0 to 1, from the begin of the first compute instruction to the end of the last
  /// instruction. Under threads, where this process has all ranks, this is the bubble of the makespan.
  double idle = 0;
  int peak_activations = 0;  // largest number of live micro-batches on a rank since the pipeline was made
};

/// The last two are the same on every process.
struct StepOptions {
  bool keep_outputs = false;  // makes StepResult::outputs() available; costs a copy of them
  /// A loss that is infinite or not a number fails a training step on every rank before any update, with InvalidLoss
  /// (invalid_loss.h), which names the layer. Steps that are submitted behind it run as if it had not been submitted.
  /// Ignored by evaluate(), and where gradients are accumulated over several calls (update_every).
  bool refuse_invalid_loss = false;
  /// Does not run the step where the step that was submitted before it was refused: it then fails with StepFailure. For
  /// programs that submit a step before they know the loss of the last one, and want no update behind a refused one.
  bool require_previous = false;
};

/// Shared by the ranks that write the result and the caller who reads it. Thread-safe.
class StepState;

/// The result of one batch. Copyable; copies refer to the same result. Every getter waits until its value is available,
/// and throws the RankFailure that ended the step.
class StepResult {
 public:
  explicit StepResult(std::shared_ptr<StepState> state) : state_(std::move(state)) {}

  /// The loss of the whole batch under the pipeline's reduction (PipelineOptions::loss_reduction).
  double loss() const;
  /// The divisor of a mean loss: the number of samples, or of tokens that are not masked.
  double weight() const;
  /// The sum of the losses of all samples, independent of the reduction. The mean over several batches is the sum of
  /// their loss_sum() divided by the sum of their weight().
  double loss_sum() const;
  /// The 2-norm of all gradients before they were clipped. Throws ConfigError if the pipeline does not clip, and
  /// for an evaluation.
  double gradient_norm() const;
  /// Whether the update was skipped because a gradient was not finite; happens with Precision::fp16 alone. The value
  /// for forward_backward() is available after step(). Waits as wait() does.
  bool update_skipped() const;
  /// Whether gradient_norm() has a value; waits for the step. Of several calls that accumulate gradients, only the one
  /// that updates has a norm.
  bool has_gradient_norm() const;
  /// Sums of the metrics over the whole batch, in the order in which evaluate() received them.
  const std::vector<double>& metrics() const;
  /// Whether loss() would return without waiting.
  bool ready() const;
  /// Waits until every local rank has finished the step, not only until the loss is available.
  void wait() const;
  /// Waits as wait() does.
  StepStats use() const;
  /// The network's outputs, with StepOptions::keep_outputs, on processes that hold the last stage and have rows of this
  /// batch; otherwise none. Waits as wait() does.
  std::optional<BatchOutputs> outputs() const;

 private:
  std::shared_ptr<StepState> state_;
};

}  // namespace penstock
