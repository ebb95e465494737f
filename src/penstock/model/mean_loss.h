// Makes a Loss, which needs sums, from a function that computes a mean, as torch's loss functions do by default.
#pragma once

#include <string>

#include "penstock/model/loss.h"

namespace penstock {

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
