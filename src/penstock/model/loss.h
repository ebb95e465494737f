// What a pipeline minimises: a sum over samples and a weight, so that uneven micro-batches come out right.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

namespace penstock {

/// For one micro-batch: `sum` is a scalar, the sum of the samples' losses; `weight` is what a mean divides by (samples,
/// or tokens that count), known from the targets alone. The loss of a batch is all sums over all weights.
struct Loss {
  std::string name;
  std::function<torch::Tensor(const torch::Tensor& output, const torch::Tensor& target)> sum;
  std::function<double(const torch::Tensor& target)> weight;
  /// For networks with several outputs: the same from all of them, in place of `sum`, which sees the first.
  std::function<torch::Tensor(const std::vector<torch::Tensor>& outputs, const torch::Tensor& target)> sum_of_all = {};
  int class_dimension = 1;  // of the output, where it holds logits: the class of the largest one is the answer

  torch::Tensor operator()(const std::vector<torch::Tensor>& outputs, const torch::Tensor& target) const {
    return sum_of_all ? sum_of_all(outputs, target) : sum(outputs.front(), target);
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
