// Values that no later step of a training can mend. Free of LibTorch.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "penstock/base/error.h"
#include "penstock/checkpoint/tensor_layout.h"

namespace penstock {

/// A tensor has such values, so that no checkpoint with it is kept.
class SpoiledTensor : public Failure {
 public:
  using Failure::Failure;
};

/// What `values` of this type contain that cannot be mended: "not a number" or "infinite"; empty where nothing. NaN
/// cannot, in any tensor, and infinities cannot in a trained parameter. Buffers and frozen parameters may be masks,
/// which consist of infinities, and the state of an optimiser may begin with them.
std::string_view spoiled_values(TensorType type, std::span<const std::byte> values, bool is_trained);

}  // namespace penstock
