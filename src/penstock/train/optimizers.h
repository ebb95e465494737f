// Optimisers that use ATen's fused kernels: one call for all parameters of a stage, with the arithmetic of
// torch::optim. Each function returns a factory for Pipeline::optimize_with.
#pragma once

#include "penstock/rank/optimizer.h"

namespace penstock {

struct SgdOptions {
  double learning_rate = 1e-2;
  double momentum = 0;
  double weight_decay = 0;
  bool nesterov = false;  // requires momentum > 0
};

struct AdamOptions {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
};

/// Stochastic gradient descent, as torch::optim::SGD without dampening. Throws ConfigError for invalid options.
OptimizerFactory sgd(const SgdOptions& options = {});
/// Adam (Kingma & Ba, arXiv 1412.6980); weight decay is added to the gradient. Throws ConfigError for invalid options.
OptimizerFactory adam(const AdamOptions& options = {});
/// AdamW (Loshchilov & Hutter, arXiv 1711.05101); weight decay is applied to the parameter. Throws ConfigError for
/// invalid options.
OptimizerFactory adamw(const AdamOptions& options = {});

}  // namespace penstock
