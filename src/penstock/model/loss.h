// The loss of a pipeline: a sum over samples and a weight, so that the mean is exact for micro-batches of unequal size.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/base/tensor.h"
#include "penstock/model/batch_function.h"
#include "penstock/model/batch_tensors.h"

namespace penstock {

/// For one micro-batch, `sum` computes the sum of the samples' losses (a scalar tensor) and `weight` the divisor of the
/// mean (the number of samples, or of tokens that count), which depends only on the targets. The loss of a batch is
/// the total of all sums divided by the total of all weights. Ranks call both functions from several threads.
struct Loss {
  std::string name;
  /// A function of (outputs, targets) or of the outputs; each argument is the first tensor or the list of all
  /// (model/batch_function.h).
  BatchFunction<torch::Tensor> sum;
  /// A function of the first target or of all targets. Empty: the number of samples.
  TargetFunction weight = {};
  /// Replaces `sum` if it is set; for networks with several outputs.
  BatchFunction<torch::Tensor> sum_of_all = {};
  int class_dimension = 1;  // the dimension of the output that holds logits, for counting right answers

  /// The function that computes the sum: `sum_of_all` if it is set, else `sum`.
  const BatchFunction<torch::Tensor>& function() const { return sum_of_all ? sum_of_all : sum; }
  /// Whether the function takes the first target, so that every batch needs at least one.
  bool reads_target() const { return function().targets() == TargetUse::first; }

  torch::Tensor operator()(const std::vector<torch::Tensor>& outputs, const std::vector<torch::Tensor>& targets) const {
    return function()(outputs, targets);
  }
  torch::Tensor operator()(const std::vector<torch::Tensor>& outputs, const torch::Tensor& target) const {
    return (*this)(outputs, std::vector<torch::Tensor>{target});
  }
};

/// Softmax cross entropy. Output [n, classes, ...] of logits, target [n, ...] of int64 class numbers; elements with
/// target -100 do not count. Throws ConfigError for targets of another type, and for one that is not a class.
extern const Loss cross_entropy;
/// Cross entropy for language models. Logits [n, T, V], target [n, T] of int64: the next token. The weight is the
/// number of tokens that count. Throws as cross_entropy.
extern const Loss next_token_loss;
/// Squared error, averaged over samples and elements. Throws ConfigError if output and target differ in shape.
extern const Loss squared_error;

/// For a message: the first of `numbers` that is not in 0..limit-1, "70 at [0, 3]"; empty if there is none.
std::string number_outside(const torch::Tensor& numbers, std::int64_t limit);

/// How the loss and gradients of a step are combined from its micro-batches (and replicas).
enum class Reduction {
  mean,  // total of all sums divided by total of all weights: as for the whole batch at once
  sum    // the sum of the micro-batches' means
};

constexpr const char* to_string(Reduction reduction) { return reduction == Reduction::mean ? "mean" : "sum"; }

/// How a step's loss and gradients are combined.
struct LossReduction {
  Reduction reduction = Reduction::mean;  // over the micro-batches
  /// Over the replicas that have samples. mean: the number of replicas does not change the results (up to rounding, for
  /// equal shares); sum: loss and gradients are multiplied by the number of replicas.
  Reduction replica_reduction = Reduction::mean;
  /// The loss that StepResult::loss() returns, independent of the gradients: `mean`, over the batch; `sum`, the sum of
  /// the micro-batches' means, averaged over the replicas. None: the loss whose gradients are applied.
  std::optional<Reduction> reported_loss = std::nullopt;
};

/// Returns `loss`; throws ConfigError if it has no function.
Loss complete(Loss loss);

/// Returns `value`, the result of the loss `name` for one micro-batch; throws ConfigError, which names its shape, if it
/// is not a scalar.
torch::Tensor require_scalar(const std::string& name, torch::Tensor value);

/// Makes a Loss from `mean`, a function that returns the mean over its arguments (a scalar), and `weight`, which
/// computes from the targets the number that this mean was divided by. Without `weight` it is the number of samples,
/// the size of dimension 0 of the first output:
///
///   ps::mean_loss("mse", [](const torch::Tensor& output, const torch::Tensor& target) {
///     return torch::mse_loss(output, target);
///   })
///
/// is correct because all samples have the same number of elements. If samples count differently (some targets are
/// ignored, for example), pass a weight:
///
///   [](const torch::Tensor& target) { return target.ne(-100).sum().item<double>(); }
///
/// The loss of a batch is then equal for every number of micro-batches and
/// replicas, up to rounding. `mean` is not called for a micro-batch of weight 0. Throws ConfigError for an empty
/// `mean`.
Loss mean_loss(const std::string& name, BatchFunction<torch::Tensor> mean, TargetFunction weight = {});

}  // namespace penstock
