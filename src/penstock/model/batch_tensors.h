// The tensors of a batch: any number of inputs and targets, and the dimension that holds the samples in each.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/base/tensor.h"

namespace penstock {

/// For each tensor of a list the dimension that holds its samples, along which it is split into replicas' shares and
/// micro-batches: 1 for [T, n, C]. None: the tensor is not split; every micro-batch of every replica reads all of it,
/// as a positional table or a [T, T] mask. Dimension 0 for tensors beyond the end of the list.
using SampleDims = std::vector<std::optional<int>>;

/// The sample dimensions of the tensors of a pipeline. Example: `{.inputs = {1, std::nullopt}}`.
struct BatchDims {
  SampleDims inputs = {};
  SampleDims targets = {};
  /// Of the outputs that inference joins; of an output without samples it returns that of one micro-batch.
  SampleDims outputs = {};
};

/// The inputs, or the targets, of a batch: zero, one or several tensors. A tensor converts to a list of one, and a list
/// of one to its tensor, so code for networks with one input and one target needs no other type. Copies share the
/// tensors' memory.
///
///   pipeline.train_step(images, labels);
///   pipeline.train_step({tokens, mask}, labels);
///   pipeline.train_step(images, {});                        // no targets: the loss reads only the outputs
///   for (auto& [inputs, targets] : loader) inputs[1] ...    // the second input
class BatchTensors {
 public:
  BatchTensors() = default;
  /// An undefined tensor makes an empty list.
  BatchTensors(torch::Tensor only) {  // NOLINT: implicitly
    if (only.defined()) tensors_.push_back(std::move(only));
  }
  BatchTensors(std::vector<torch::Tensor> tensors) : tensors_(std::move(tensors)) {  // NOLINT: implicitly
    if (tensors_.size() == 1 && !tensors_.front().defined()) tensors_.clear();
  }
  /// Concatenates lists: `{batch.inputs, mask}` contains all inputs of the batch, then the mask.
  BatchTensors(std::initializer_list<BatchTensors> lists) {
    for (const BatchTensors& list : lists) tensors_.insert(tensors_.end(), list.tensors_.begin(), list.tensors_.end());
    if (lists.size() == 1) samples_of_none_ = lists.begin()->samples_of_none_;
  }
  /// An empty list that still records the number of samples of the batch. A Loader returns it as the targets of a
  /// source without targets.
  static BatchTensors none(std::int64_t samples) {
    BatchTensors nothing;
    nothing.samples_of_none_ = samples;
    return nothing;
  }

  const std::vector<torch::Tensor>& list() const& { return tensors_; }
  std::vector<torch::Tensor> list() && { return std::move(tensors_); }
  std::size_t count() const { return tensors_.size(); }
  /// One tensor, counted from 0. Throws ConfigError if there are fewer.
  const torch::Tensor& operator[](std::size_t index) const {
    require<ConfigError>(index < count(), "tensor ", index, " of a list of ", count(), ": count from 0");
    return tensors_[index];
  }
  /// The only tensor. Throws ConfigError if there are none or several.
  operator const torch::Tensor&() const {  // NOLINT: implicitly
    require<ConfigError>(count() == 1, "a list of ", count(), " tensors is used as one tensor: choose one, as in [0]");
    return tensors_.front();
  }
  /// The argument of none(); 0 for any other list.
  std::int64_t samples_of_none() const { return samples_of_none_; }

 private:
  std::vector<torch::Tensor> tensors_;
  std::int64_t samples_of_none_ = 0;
};

}  // namespace penstock
