// Optimisers on ATen's fused kernels: one call for all parameters of a stage. Their arithmetic is torch::optim's.
// Each function gives a factory for Pipeline::optimize_with.
#pragma once

#include "penstock/runtime/optimizer.h"

namespace penstock {

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;  // needs momentum
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

/// Stochastic gradient descent, as torch::optim::SGD without dampening. Throws ConfigError for settings that cannot be.
OptimizerFactory sgd(const SgdOptions& options = {});
/// Adam (Kingma & Ba, arXiv 1412.6980); weight decay is added to the gradient.
OptimizerFactory adam(const AdamOptions& options = {});
/// AdamW (Loshchilov & Hutter, arXiv 1711.05101); weight decay shrinks the parameter itself.
OptimizerFactory adamw(const AdamOptions& options = {});

}  // namespace penstock
