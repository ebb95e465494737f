// Losses that are means, as torch's are by default, for a pipeline, which adds up sums.
#pragma once

#include <string>

#include "penstock/model/loss.h"

namespace penstock {

/// A Loss from `mean`, a function that gives the mean over what it is shown (a scalar), and `weight`, which counts what
/// that mean divided by, from the targets alone; without one, it is the number of samples, along dimension 0 of the
/// first output:
///
///   ps::mean_loss("mse", [](const torch::Tensor& output, const torch::Tensor& target) {
///     return torch::mse_loss(output, target);
///   })
///
/// is right, because all samples are of one size. Where they count differently (some targets are ignored, for example),
/// say how: `[](const torch::Tensor& target) { return target.ne(-100).sum().item<double>(); }`. The loss of a batch is
/// then the same for every number of micro-batches and replicas, up to rounding. Where a micro-batch has nothing to
/// count, `mean` is not called. Throws ConfigError for an empty `mean`.
Loss mean_loss(const std::string& name, BatchFunction<torch::Tensor> mean, TargetFunction weight = {});

}  // namespace penstock
