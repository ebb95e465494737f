// What a Loss has to be, checked before and while it is used.
#pragma once

#include "penstock/model/loss.h"

namespace penstock {

/// `loss`, where it has a function that computes it. Throws ConfigError otherwise.
Loss complete(Loss loss);

/// `value`, which the loss called `name` computed for one micro-batch, where it is a scalar. Throws ConfigError, naming
/// its shape, otherwise.
torch::Tensor require_scalar(const std::string& name, torch::Tensor value);

}  // namespace penstock
