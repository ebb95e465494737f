// Dropout whose masks belong to samples.
#pragma once

#include <cstdint>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace penstock {

struct DropoutOptions {
  double p = 0.5;                     // the probability of zero
  std::int64_t sample_dimension = 0;  // which dimension holds the samples; negative numbers count from the last
  /// The samples' dimension holds several entries of each sample, one sample after the other: as [n, t, c] is flattened
  /// to [n*t, c].
  bool flattened = false;
};

/// Sets each element to zero with probability p while training, and divides the others by 1 - p. In a pipeline the mask
/// is a function of (seed, step, layer, sample) alone: the same for every partition, schedule, number of micro-batches and
/// replicas, and transport. (torch::nn::Dropout draws per micro-batch: the same for all but the number of micro-batches
/// and replicas.) Outside a pipeline it is torch's dropout. Floating-point tensors. In a pipeline, forward throws
/// ScheduleError for an input whose dimension `sample_dimension` does not hold the samples of the micro-batch, as [t, n, c]
/// or a [1, t, c] that is broadcast later.
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
