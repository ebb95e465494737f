// The tensors of a batch: any number of inputs and targets, and the dimension that holds the samples in each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <variant>
#include <vector>

#include "penstock/base/tensor.h"

namespace penstock {

/// The tensor is split into samples along this dimension: 1 for [T, N, C].
struct AlongDim {
  int dimension = 0;
};
/// The tensor is not split; every micro-batch of every replica reads all of it: a positional table, a [T, T] mask.
struct Whole {};
/// How a tensor is split into replicas' shares and micro-batches. Default: along dimension 0.
using TensorLayout = std::variant<AlongDim, Whole>;

/// The inputs, or the targets, of a batch: a list of zero, one or several tensors. A tensor converts to a list of
/// length one, and a list can be used like its first tensor, so code for networks with one input and one target needs
/// no other type. Copies share the tensors' memory, as copies of torch::Tensor do.
///
///   pipeline.train_step(images, labels);
///   pipeline.train_step({tokens, mask}, labels);
///   pipeline.train_step(images, {});                   // no targets: the loss reads the outputs alone
///   for (auto& [inputs, targets] : loader) inputs.list() ...
class BatchTensors : public torch::Tensor {
 public:
  BatchTensors() = default;
  /// An undefined tensor makes an empty list.
  BatchTensors(torch::Tensor only) : torch::Tensor(std::move(only)) {}  // NOLINT: tensors are lists of one, implicitly
  BatchTensors(const std::vector<torch::Tensor>& tensors) {             // NOLINT
    for (const torch::Tensor& tensor : tensors) append(tensor);
  }
  /// Concatenates lists: `{batch.inputs, mask}` contains all inputs of the batch, then the mask.
  BatchTensors(std::initializer_list<BatchTensors> lists) {
    for (const BatchTensors& list : lists)
      for (const torch::Tensor& tensor : list.list()) append(tensor);
    if (lists.size() == 1) samples_of_none_ = lists.begin()->samples_of_none_;
  }
  /// An empty list that still records the number of samples of the batch. A Loader returns it as the targets of a
  /// source without targets.
  static BatchTensors none(std::int64_t samples) {
    BatchTensors nothing;
    nothing.samples_of_none_ = samples;
    return nothing;
  }

  std::vector<torch::Tensor> list() const {
    std::vector<torch::Tensor> all;
    if (count() == 0) return all;
    all.push_back(*this);
    all.insert(all.end(), more_.begin(), more_.end());
    return all;
  }
  std::size_t count() const { return !defined() && more_.empty() ? 0 : 1 + more_.size(); }
  /// The argument of none(); 0 for any other list.
  std::int64_t samples_of_none() const { return samples_of_none_; }

 private:
  void append(const torch::Tensor& tensor) {
    if (has_first_)
      more_.push_back(tensor);
    else
      torch::Tensor::operator=(tensor);
    has_first_ = true;
  }

  std::vector<torch::Tensor> more_;  // all but the first tensor
  bool has_first_ = false;           // for append(): the first tensor of several may be undefined
  std::int64_t samples_of_none_ = 0;
};

}  // namespace penstock
