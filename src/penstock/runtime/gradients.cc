#include "penstock/runtime/gradients.h"

#include <algorithm>

#include <torch/nn/module.h>

namespace penstock {
namespace {

/// True when nobody else can see the memory of `tensor`, and it is laid out as `like` is.
bool is_our_own(const torch::Tensor& tensor, const torch::Tensor& like) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 && tensor.strides() == like.strides() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.element_size() == tensor.storage().nbytes();
}

}  // namespace

void Gradients::add_call(const std::string& layer_path, const torch::nn::Module& module) {
  for (const auto& item : module.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    const std::string name = layer_path + "." + item.key();
    const auto has_this_name = [&](const Parameter& p) { return p.name == name; };
    auto parameter = std::find_if(parameters_.begin(), parameters_.end(), has_this_name);
    if (parameter == parameters_.end()) parameter = parameters_.insert(parameter, Parameter{name, item.value(), {}});
    parameter->uses.push_back(leaves_.size());
    leaves_.push_back(item.value());
    buffers_.emplace_back();
    written_.push_back(false);
  }
}

void Gradients::begin_step() { written_.assign(written_.size(), false); }

void Gradients::accumulate(Tensors gradients) {
  const torch::NoGradGuard no_grad;
  for (std::size_t use = 0; use < leaves_.size(); ++use) {
    torch::Tensor& gradient = gradients[use];
    if (!gradient.defined()) continue;
    if (written_[use]) {
      buffers_[use].add_(gradient);
      continue;
    }
    written_[use] = true;
    if (is_our_own(gradient, leaves_[use])) {
      buffers_[use] = std::move(gradient);
    } else {
      if (!buffers_[use].defined()) buffers_[use] = torch::empty_like(leaves_[use]);
      buffers_[use].copy_(gradient);
    }
  }
}

Tensors Gradients::sum_uses() {
  const torch::NoGradGuard no_grad;
  Tensors sums;
  for (const Parameter& parameter : parameters_) {
    torch::Tensor sum;
    for (std::size_t use : parameter.uses) {
      if (!written_[use]) continue;
      if (sum.defined())
        sum.add_(buffers_[use]);
      else
        sum = buffers_[use];
    }
    sums.push_back(std::move(sum));
  }
  return sums;
}

}  // namespace penstock
