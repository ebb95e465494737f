// Finds tensors that contain NaN, which no later step of a training can mend. Free of LibTorch.
#pragma once

#include <string>

#include "penstock/checkpoint/rank_files.h"

namespace penstock {

/// The name of the first tensor with a value that is not a number; empty where there is none. Infinities are no finding:
/// masks consist of them.
std::string tensor_that_is_no_number(const RankTensors& tensors);

}  // namespace penstock
