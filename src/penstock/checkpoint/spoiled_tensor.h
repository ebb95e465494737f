// Finds tensors with values that no later step of a training can mend. Free of LibTorch.
#pragma once

#include <string>

#include "penstock/checkpoint/rank_files.h"

namespace penstock {

/// Names the first tensor with such values and says what they are, as the reason why no checkpoint is kept; empty where
/// there are none. They are NaN in any tensor, and infinities in a trained parameter. Buffers and frozen parameters may
/// be masks, which consist of infinities, and the state of an optimiser may begin with them.
std::string spoiled_tensor(const RankTensors& tensors);

}  // namespace penstock
