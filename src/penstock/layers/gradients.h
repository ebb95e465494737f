// The parameters of one stage and the buffers that accumulate their gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/stages.h"

namespace penstock::layers {

/// One parameter and its uses. A layer that is called twice uses its parameters twice. Each use has its own autograd
/// leaf over the same values and its own gradient buffer, so that the order of summation is fixed.
struct TrainedParameter {
  std::string name;                    // "layer1.weight"
  torch::Tensor value;                 // the first use's leaf, which the optimiser updates
  ParameterUses all_uses;              // on all stages
  std::vector<std::size_t> uses = {};  // on this stage: indices of leaves
};

/// The gradient buffers of a stage, one per use. The first gradient after begin_step() overwrites a buffer and later
/// ones are added, so that buffers are never zeroed. Buffers share no memory with other tensors. Lives on its rank's
/// thread.
class Gradients {
 public:
  /// Adds the use of a parameter by one more call; `parameter.value` is the call's leaf.
  void add_use(TrainedParameter parameter);

  /// The leaves of all uses that require gradients, in graph order: the inputs of a backward pass.
  const Tensors& leaves() const { return leaves_; }
  const std::vector<TrainedParameter>& parameters() const { return parameters_; }
  /// The index of `leaf` in leaves(); none if leaves() does not contain it.
  std::optional<std::size_t> use_of(const torch::Tensor& leaf) const;

  /// Discards the accumulated gradients.
  void begin_step();
  /// Multiplies the accumulated gradients by `factor`, before a further batch adds to them.
  void scale(double factor);
  /// The number of calls of begin_step(), which identifies values that are computed once per step.
  std::uint64_t step() const { return step_; }
  /// Adds one micro-batch's gradient of one use.
  void add(std::size_t use, torch::Tensor gradient);
  /// Adds the product of the matrices a and b, without a temporary.
  void add_product(std::size_t use, const torch::Tensor& a, const torch::Tensor& b);
  /// Calls `write`, which adds to the buffer of one use, or overwrites all of it if `is_first`.
  void add_by(std::size_t use, const std::function<void(torch::Tensor& buffer, bool is_first)>& write);
  /// Adds one micro-batch's gradients, one per leaf; undefined ones add nothing, and sparse ones are made dense.
  /// Gradients that come before an earlier micro-batch's wait for them, so that sums are always made in
  /// ascending order. To be called once for every micro-batch of a step, counted from 0.
  void add_in_order(std::size_t micro_batch, Tensors gradients);
  /// The bytes of the gradients that wait for earlier micro-batches.
  std::int64_t waiting_bytes() const;

  /// The accumulated gradient of one use; undefined if nothing was added. Shares the buffer's memory.
  torch::Tensor of_use(std::size_t use) const { return written_[use] ? buffers_[use] : torch::Tensor(); }
  /// Whether sums over uses may overwrite the gradients of single uses.
  enum class Summing { apart, in_buffers };
  /// The sum over the uses of a parameter, in graph order; it may share a buffer's memory. Undefined if nothing was
  /// added, and for tied parameters, whose other uses are on other stages.
  torch::Tensor sum_of(std::size_t parameter, Summing summing) const;

  /// Declares that the layer of a use has a split backward pass (split_layer.h): it calls end_weight_grad() after each W.
  void set_split(std::size_t use) { split_[use] = true; }
  bool is_split(std::size_t use) const { return split_[use]; }
  /// Calls `done` with a use after each of its W, from inside the backward pass; null: does not.
  void watch(std::function<void(std::size_t use)> done) { done_ = std::move(done); }
  void end_weight_grad(std::size_t use) const {
    if (done_) done_(use);
  }

 private:
  std::vector<TrainedParameter> parameters_;
  Tensors leaves_;   // by use
  Tensors buffers_;  // by use
  std::vector<bool> written_, split_;
  std::function<void(std::size_t use)> done_;
  std::uint64_t step_ = 0;
  std::map<std::size_t, Tensors> waiting_;  // by micro-batch
  std::size_t next_ = 0;                    // the micro-batch whose gradients add_in_order() takes at once
};

}  // namespace penstock::layers
