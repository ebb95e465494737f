// Checks of a Loss before and during its use. Internal to the library.
#pragma once

#include "penstock/model/loss.h"

namespace penstock {

/// Returns `loss`; throws ConfigError if it has no function.
Loss complete(Loss loss);

/// Returns `value`, the result of the loss `name` for one micro-batch; throws ConfigError, which names its shape, if it
/// is not a scalar.
torch::Tensor require_scalar(const std::string& name, torch::Tensor value);

}  // namespace penstock
