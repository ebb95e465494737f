// What a program may do to gradients before they are applied.
#pragma once

#include <functional>
#include <string>

#include "penstock/base/tensor.h"

namespace penstock {

/// Gets a parameter's full name and its gradient, of the parameter's shape and dtype, and returns the gradient that
/// counts instead, of the same shape and dtype; an undefined tensor leaves it as it is. Not in place: replicas may
/// share the memory. Called on the thread of each rank that holds the parameter (each stage that uses a tied one, each
/// replica), on several threads at once: it must be a function of its arguments alone, so that all ranks make the same
/// of one gradient.
using GradientHook = std::function<torch::Tensor(const std::string& name, const torch::Tensor& gradient)>;

}  // namespace penstock
