#include "penstock/layers/gradients.h"

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/kernels/add_product.h"

namespace penstock::layers {
namespace {

/// Whether no other tensor shares the memory of `tensor`, and it has the type and layout of `like`.
bool is_our_own(const torch::Tensor& tensor, const torch::Tensor& like) {
  return tensor.scalar_type() == like.scalar_type() && tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         tensor.strides() == like.strides() &&
         static_cast<std::size_t>(tensor.numel()) * tensor.element_size() == tensor.storage().nbytes();
}

}  // namespace

void Gradients::add_use(TrainedParameter parameter) {
  const torch::Tensor leaf = parameter.value;
  const auto has_this_name = [&](const TrainedParameter& p) { return p.name == parameter.name; };
  auto known = std::find_if(parameters_.begin(), parameters_.end(), has_this_name);
  if (known == parameters_.end()) known = parameters_.insert(known, std::move(parameter));
  known->uses.push_back(leaves_.size());
  leaves_.push_back(leaf);
  buffers_.emplace_back();
  written_.push_back(false);
  split_.push_back(false);
}

std::optional<std::size_t> Gradients::use_of(const torch::Tensor& leaf) const {
  const auto found = std::find_if(leaves_.begin(), leaves_.end(), [&](const auto& one) { return one.is_same(leaf); });
  if (found == leaves_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - leaves_.begin());
}

void Gradients::begin_step() {
  written_.assign(written_.size(), false);
  waiting_.clear();
  next_ = 0;
  ++step_;
}

void Gradients::scale(double factor) {
  const torch::NoGradGuard no_grad;
  waiting_.clear();
  next_ = 0;  // the micro-batches of the further batch count from 0 again
  if (factor == 1) return;
  for (std::size_t use = 0; use < buffers_.size(); ++use)
    if (written_[use]) buffers_[use].mul_(factor);
}

void Gradients::add(std::size_t use, torch::Tensor gradient) {
  const torch::NoGradGuard no_grad;
  if (written_[use]) {
    buffers_[use].add_(gradient);
    return;
  }
  written_[use] = true;
  if (is_our_own(gradient, leaves_[use])) {
    buffers_[use] = std::move(gradient);
  } else {
    if (!buffers_[use].defined()) buffers_[use] = torch::empty_like(leaves_[use]);
    buffers_[use].copy_(gradient);
  }
}

void Gradients::add_product(std::size_t use, const torch::Tensor& a, const torch::Tensor& b) {
  add_by(use, [&](torch::Tensor& buffer, bool is_first) { kernels::add_product_to(buffer, is_first, a, b); });
}

void Gradients::add_by(std::size_t use, const std::function<void(torch::Tensor& buffer, bool is_first)>& write) {
  const torch::NoGradGuard no_grad;
  torch::Tensor& buffer = buffers_[use];
  if (!buffer.defined()) buffer = torch::empty_like(leaves_[use]);
  write(buffer, !written_[use]);
  written_[use] = true;
}

void Gradients::add_in_order(std::size_t micro_batch, Tensors gradients) {
  for (torch::Tensor& gradient : gradients)
    if (gradient.defined() && gradient.is_sparse()) gradient = gradient.to_dense();
  const bool is_new = micro_batch >= next_ && waiting_.emplace(micro_batch, std::move(gradients)).second;
  require<InternalError>(is_new, "the gradients of micro-batch ", micro_batch, " came twice");
  while (!waiting_.empty() && waiting_.begin()->first == next_) {
    Tensors now = std::move(waiting_.extract(waiting_.begin()).mapped());
    for (std::size_t use = 0; use < now.size(); ++use)
      if (now[use].defined()) add(use, std::move(now[use]));
    ++next_;
  }
}

std::int64_t Gradients::waiting_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [micro_batch, gradients] : waiting_)
    for (const torch::Tensor& gradient : gradients)
      if (gradient.defined())
        bytes += static_cast<std::int64_t>(std::min(gradient.nbytes(), gradient.storage().nbytes()));
  return bytes;
}

torch::Tensor Gradients::sum_of(std::size_t parameter, Summing summing) const {
  const torch::NoGradGuard no_grad;
  const TrainedParameter& of = parameters_[parameter];
  torch::Tensor sum;
  for (const std::size_t use : of.uses) {
    if (!written_[use] || of.all_uses.is_tied()) continue;
    if (!sum.defined())
      sum = buffers_[use];
    else
      sum = summing == Summing::in_buffers ? sum.add_(buffers_[use]) : sum + buffers_[use];
  }
  return sum;
}

}  // namespace penstock::layers
