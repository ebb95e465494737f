// Dropout that a pipeline can repeat.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace penstock {

/// Sets each element to zero with probability p while training, and divides the others by 1 - p. In a pipeline the mask
/// is a function of (seed, step, layer, sample) alone, dimension 0 being the sample: the same for every cut, schedule,
/// number of replicas and transport. (torch::nn::Dropout draws from a generator that all threads share.) Outside a
/// pipeline it is torch's dropout. Floating-point tensors.
class DropoutImpl : public torch::nn::Module {
 public:
  /// Throws ConfigError unless 0 <= p < 1.
  explicit DropoutImpl(double p = 0.5);
  torch::Tensor forward(const torch::Tensor& input);

 private:
  double p_;
};
TORCH_MODULE(Dropout);

}  // namespace penstock
