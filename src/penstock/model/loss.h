// What a pipeline minimises: a sum over samples and a weight, so that uneven micro-batches come out right.
#pragma once

#include <string>
#include <vector>

#include "penstock/base/tensor.h"
#include "penstock/model/batch_function.h"
#include "penstock/model/batch_tensors.h"

namespace penstock {

/// For one micro-batch: `sum` is a scalar, the sum of the samples' losses; `weight` is what a mean divides by (samples,
/// or tokens that count), known from the targets alone. The loss of a batch is all sums over all weights.
struct Loss {
  std::string name;
  /// From (outputs, targets), or from the outputs alone; of each the first tensor or all: model/batch_function.h.
  BatchFunction<torch::Tensor> sum;
  /// From the first target, or from all. None: the number of samples.
  TargetFunction weight = {};
  /// In place of `sum`, for networks with several outputs.
  BatchFunction<torch::Tensor> sum_of_all = {};
  int class_dimension = 1;  // of the output, where it holds logits: the class of the largest one is the answer

  /// `sum_of_all` where it is given, else `sum`.
  const BatchFunction<torch::Tensor>& function() const { return sum_of_all ? sum_of_all : sum; }
  /// Whether it compares with the first target, so that a batch needs one.
  bool looks_at_target() const { return function().targets() == Looks::at_one; }

  torch::Tensor operator()(const std::vector<torch::Tensor>& outputs, const std::vector<torch::Tensor>& targets) const {
    return function()(outputs, targets);
  }
  torch::Tensor operator()(const std::vector<torch::Tensor>& outputs, const torch::Tensor& target) const {
    return (*this)(outputs, std::vector<torch::Tensor>{target});
  }
};

/// Softmax cross entropy. Output [n, classes, ...], target [n, ...] of class numbers; targets of -100 do not count.
extern const Loss cross_entropy;
/// The same for language models. Logits [n, T, V], target [n, T]: the token that comes next; the weight counts tokens.
extern const Loss next_token_loss;
/// Squared error, a mean over samples and elements. Output and target of one shape, else ConfigError.
extern const Loss squared_error;

/// How a step's loss and gradients are made from its micro-batches (and replicas).
enum class Reduction {
  mean,  // all sums over all weights: equal to the whole batch at once
  sum    // the sum over micro-batches of each one's own mean
};

}  // namespace penstock
