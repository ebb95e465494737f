// Dropout whose mask is drawn per sample, so that it does not depend on the number of micro-batches and replicas.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace penstock {

struct DropoutOptions {
  double p = 0.5;                     // probability that an element is set to zero
  std::int64_t sample_dimension = 0;  // the dimension that holds the samples; negative numbers count from the last
  /// True if `sample_dimension` holds several consecutive entries per sample, as when [n, t, c] is flattened to
  /// [n*t, c].
  bool flattened = false;
};

/// In training mode, sets each element to zero with probability p and divides the others by 1 - p. In a pipeline the
/// mask depends only on (seed, step, layer, sample): equal for every partition, schedule, number of
/// micro-batches and replicas, and transport. (The mask of torch::nn::Dropout is drawn per micro-batch and changes with
/// the number of micro-batches and replicas.) Outside a pipeline it is torch's dropout. Takes floating-point tensors.
/// In a pipeline, forward throws ScheduleError if dimension `sample_dimension` of the input does not hold the samples
/// of the micro-batch, for example for [t, n, c] or for a [1, t, c] that is broadcast later.
class DropoutImpl : public torch::nn::Module {
 public:
  /// Throws ConfigError unless 0 <= p < 1.
  explicit DropoutImpl(double p = 0.5);
  explicit DropoutImpl(const DropoutOptions& options);
  torch::Tensor forward(const torch::Tensor& input);

 private:
  DropoutOptions options_;
};
TORCH_MODULE(Dropout);

}  // namespace penstock
