// A function of the program that changes gradients before they are applied.
#pragma once

#include <functional>
#include <string>

#include "penstock/base/tensor.h"

namespace penstock {

/// Receives a parameter's full name and its gradient, and returns the gradient to apply instead, of the same shape and
/// dtype, or an undefined tensor to keep it. Must not change the gradient in place, because replicas may share its
/// memory. Called on the thread of every rank that holds the parameter (each stage that uses a tied one, each replica),
/// concurrently: the result must depend on the arguments alone, so that all ranks apply the same gradient.
using GradientHook = std::function<torch::Tensor(const std::string& name, const torch::Tensor& gradient)>;

}  // namespace penstock
