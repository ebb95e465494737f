// What a batch is made of: any number of tensors as inputs and as targets, and where the samples lie in each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <variant>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock {

/// The samples of a tensor lie along this dimension: [T, N, C] has them along dimension 1.
struct AlongDim {
  int dimension = 0;
};
/// Every micro-batch of every replica sees the whole tensor: a positional table, a [T, T] mask.
struct Whole {};
/// How a tensor is split into shares and micro-batches. The default is along dimension 0.
using TensorLayout = std::variant<AlongDim, Whole>;

/// The inputs, or the targets, of a batch: none, one or several tensors. A tensor converts to a list of one, and a list
/// is used like its first tensor: code for networks with one input and one target needs no other type.
///
///   pipeline.train_step(images, labels);
///   pipeline.train_step({tokens, mask}, labels);
///   pipeline.train_step(images, {});                   // no targets: the loss looks at the outputs alone
///   for (auto& [inputs, targets] : loader) inputs.list() ...
class BatchTensors : public torch::Tensor {
 public:
  BatchTensors() = default;
  /// An undefined tensor makes an empty list.
  BatchTensors(torch::Tensor only) : torch::Tensor(std::move(only)) {}  // NOLINT: tensors are lists of one, implicitly
  BatchTensors(const std::vector<torch::Tensor>& tensors) {             // NOLINT
    for (const torch::Tensor& tensor : tensors) append(tensor);
  }
  /// One list out of several: `{batch.inputs, mask}` has all inputs of the batch, then the mask.
  BatchTensors(std::initializer_list<BatchTensors> lists) {
    for (const BatchTensors& list : lists)
      for (const torch::Tensor& tensor : list.list()) append(tensor);
    if (lists.size() == 1) samples_of_none_ = lists.begin()->samples_of_none_;
  }
  /// No tensors, of a batch of so many samples: what a Loader hands out as targets where its source has none.
  static BatchTensors none(std::int64_t samples) {
    BatchTensors nothing;
    nothing.samples_of_none_ = samples;
    return nothing;
  }

  /// All of them, in their order.
  std::vector<torch::Tensor> list() const {
    std::vector<torch::Tensor> all;
    if (count() == 0) return all;
    all.push_back(*this);
    all.insert(all.end(), more_.begin(), more_.end());
    return all;
  }
  std::size_t count() const { return !defined() && more_.empty() ? 0 : 1 + more_.size(); }
  /// The number of samples that none() was given; 0 elsewhere.
  std::int64_t samples_of_none() const { return samples_of_none_; }

 private:
  void append(const torch::Tensor& tensor) {
    if (has_first_)
      more_.push_back(tensor);
    else
      torch::Tensor::operator=(tensor);
    has_first_ = true;
  }

  std::vector<torch::Tensor> more_;  // behind the first
  bool has_first_ = false;           // while it is put together: the first one may be undefined
  std::int64_t samples_of_none_ = 0;
};

}  // namespace penstock
