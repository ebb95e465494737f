#include "penstock/model/weight_source.h"

#include <torch/autograd.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

/// The tensor for `into`; undefined if `into` keeps its value.
torch::Tensor value_for(const torch::Tensor& into, const WeightSource& source, const std::string& name) {
  torch::Tensor value = source.read(name);
  if (!value.defined() && source.may_lack(name)) return value;
  require<ConfigError>(value.defined(), "the network has '", name, "' of shape ", into.sizes(), ", but ",
                       source.place(), " has no tensor of that name: pass the weights of this network");
  require<ConfigError>(value.sizes() == into.sizes(), "'", name, "' has shape ", into.sizes(), " in the network and ",
                       value.sizes(), " in ", source.place(), ": pass the weights of this network");
  require<ConfigError>((value.is_floating_point() && into.is_floating_point()) || value.dtype() == into.dtype(), "'",
                       name, "' is ", into.dtype(), " in the network and ", value.dtype(), " in ", source.place(),
                       ": only floating-point tensors are cast");
  return value;
}

}  // namespace

bool takes_value(const torch::Tensor& into, const WeightSource& source, const std::string& name) {
  return value_for(into, source, name).defined();
}

void take_value(torch::Tensor& into, const WeightSource& source, const std::string& name) {
  const torch::NoGradGuard no_grad;
  if (const torch::Tensor value = value_for(into, source, name); value.defined()) into.copy_(value);
}

}  // namespace penstock
