// Declares torch::Tensor for headers, without <torch/types.h>, which takes ten times as long to compile.
#pragma once

#include <ATen/core/TensorBody.h>

namespace torch {
using at::Tensor;
using c10::ScalarType;
namespace nn {
class Module;
class Sequential;
}  // namespace nn
}  // namespace torch
