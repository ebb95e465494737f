// What a program asks of a batch, and what the ranks report: options, metrics, loss, outputs, the error of an invalid
// loss, and measured memory.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/base/split.h"
#include "penstock/base/tensor.h"
#include "penstock/model/batch_function.h"
#include "penstock/world/failures.h"

namespace penstock::rank {
class StepState;  // shared by the ranks that write a result and the caller who reads it; thread-safe
}  // namespace penstock::rank

namespace penstock {

/// How the replicas of a pipeline share the rows of an inference.
enum class ReplicaInput {
  share,  // each replica computes its share, and the outputs are concatenated
  each    // each replica computes all rows; a process gets the outputs of its own replica, under threads of replica 0
};

/// A number that is summed over the samples of a batch. `count` returns the sum over one micro-batch's samples. It is a
/// function of (outputs, targets) or of the outputs alone, each of them the first tensor or all tensors
/// (model/batch_function.h). Called on the threads of the ranks that hold the last stage.
struct Metric {
  std::string name;
  BatchFunction<double> count;
  /// Optional, for devices: the same number as a scalar tensor on the device of the outputs, so that no rank waits for
  /// it between micro-batches.
  BatchFunction<torch::Tensor> count_on_device = {};
};

/// The number of samples whose largest logit is that of the target class. Output [n, classes, ...], target [n, ...]
/// with class numbers.
extern const Metric correct;
/// The same with the classes along dimension `class_dimension` of the output: 2 for tokens, [n, T, V].
Metric correct_along(int class_dimension);

/// The outputs and targets of the rows that this process computes.
struct BatchOutputs {
  std::vector<torch::Tensor> outputs;  // all values that the network returns; on the CPU, without a graph
  std::vector<torch::Tensor> targets;  // of the same rows; tensors without samples unchanged
  RowRange rows;                       // the rows within the whole batch; under threads all of them
};

/// A training step whose loss is infinite or not a number.
struct InvalidStep {
  std::uint64_t step = 0;  // the number of training steps before it, as random numbers count them
  double loss = 0;         // of the micro-batch
  int replica = 0;         // if several have such a loss, one of them
  int replicas = 1;        // of the pipeline
  int micro_batch = 0;     // the first one of the replica
  int stage = 0;           // the last one, which computes the loss
  /// What is not finite: a parameter of any stage, an input of the batch, or the first value of the last stage.
  std::string cause = {};
  /// If a parameter is not finite: the newest training step that has updated the parameters. None before the first one,
  /// and after parameters were loaded.
  std::optional<std::uint64_t> spoiled_by = {};
};

/// "the loss of training step 12 is nan in micro-batch 3 (stage 1): the output of layer 'layer2' (stage 1) is not
/// finite, though its inputs and parameters are".
std::string text_of(const InvalidStep& invalid);
/// "nan", "inf" or "-inf", without the sign that NaN has on some processors; other numbers as they are written.
std::string text_of_loss(double loss);

/// The loss of a training step is infinite or not a number. Nothing was updated: the pipeline remains usable, with the
/// state before the step. The message is the same on every process.
class InvalidLoss : public StepFailure {
 public:
  explicit InvalidLoss(const InvalidStep& invalid) : InvalidLoss(invalid, text_of(invalid)) {}
  /// With a message of the caller's.
  InvalidLoss(const InvalidStep& invalid, const std::string& message) : StepFailure(message), invalid_(invalid) {}

  const InvalidStep& where() const { return invalid_; }

 private:
  InvalidStep invalid_;
};

bool is_invalid_loss(const std::exception_ptr& error);

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
  /// A loss that is infinite or not a number fails a training step on every rank before any update, with InvalidLoss,
  /// which names the layer. Steps that are submitted behind it run as if it had not been submitted.
  /// Ignored by evaluate(), and where gradients are accumulated over several calls (PipelineOptions::update_every).
  bool refuse_invalid_loss = false;
  /// Does not run the step where the step that was submitted before it was refused: it then fails with StepFailure. For
  /// programs that submit a step before they know the loss of the last one, and want no update behind a refused one.
  bool require_previous = false;
};

/// The result of one batch. Copyable; copies refer to the same result. Every getter waits until its value is available,
/// and throws the RankFailure that ended the step.
class StepResult {
 public:
  explicit StepResult(std::shared_ptr<rank::StepState> state) : state_(std::move(state)) {}

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
  std::shared_ptr<rank::StepState> state_;
};

/// Peak activations and memory of a rank.
struct RankPeak {
  static constexpr std::string_view record_name = "RankPeak";  // sent to other ranks (transport/records.h)

  WorldRank rank;
  int measured = 0;   // largest number of live micro-batches since the pipeline was made
  int predicted = 0;  // the same as counted by validate() for the executed schedules
  /// Peak bytes of the live micro-batches, without the first training step: measured by observing allocations, and
  /// predicted from one micro-batch (rank/held_bytes.h). 0 without PipelineOptions::count_bytes.
  std::int64_t measured_bytes = 0;
  std::int64_t predicted_bytes = 0;
  /// Bytes of the optimiser's state on this rank; 0 without count_bytes, and if the optimiser's class has no state().
  std::int64_t optimizer_bytes = 0;
  /// Physical memory of the process that holds the rank, at present and at its peak: of all its ranks together,
  /// including the libraries.
  std::int64_t resident_bytes = 0;
  std::int64_t peak_resident_bytes = 0;
};

/// Bytes of the activations of one micro-batch on one stage (rank/held_bytes.h), of the micro-batch with the most.
struct StageBytes {
  static constexpr std::string_view record_name = "StageBytes";  // sent to other ranks (transport/records.h)

  StageId stage;
  std::int64_t after_forward = 0;     // from F to B or I
  std::int64_t after_input_grad = 0;  // from I to W; 0 if no B was split
};

}  // namespace penstock
