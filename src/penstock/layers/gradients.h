// The parameters of one stage and the buffers their gradients gather in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/kernels/add_product.h"
#include "penstock/model/ties.h"

namespace penstock {

/// One parameter, and every place that uses it. A layer that is called twice uses its parameters twice: each use is a
/// leaf of its own over the same values, with a gradient buffer of its own, so that the order of summation is fixed.
struct TrainedParameter {
  std::string name;                    // "layer1.weight"
  torch::Tensor value;                 // the first use's leaf; what the optimiser steps
  ParameterUses all_uses;              // on all stages
  std::vector<std::size_t> uses = {};  // those of this stage: indices of leaves
};

/// Whatever is added first to a buffer after begin_step() is written, what comes later is added: buffers are never
/// zeroed, and never memory that anyone else can see.
class Gradients {
 public:
  /// Adds the use of a parameter by one more call: `parameter.value` is the call's leaf.
  void add_use(TrainedParameter parameter);

  /// Every use that wants a gradient, in graph order: what a backward pass differentiates for.
  const Tensors& leaves() const { return leaves_; }
  const std::vector<TrainedParameter>& parameters() const { return parameters_; }
  /// Where `leaf` stands in leaves().
  std::optional<std::size_t> use_of(const torch::Tensor& leaf) const;

  void begin_step();
  /// Multiplies what was gathered: the step goes on with further batches.
  void scale(double factor);
  /// How often that was called: what is computed once per step is known by this number.
  std::uint64_t step() const { return step_; }
  /// Adds one micro-batch's gradient of one use.
  void add(std::size_t use, torch::Tensor gradient);
  /// Adds a b, two matrices, without the product in between.
  void add_product(std::size_t use, const torch::Tensor& a, const torch::Tensor& b);
  /// Lets `write` add to one use's buffer, or fill it whole where it `is_first`.
  void add_by(std::size_t use, const std::function<void(torch::Tensor& buffer, bool is_first)>& write);
  /// Adds one micro-batch's gradients, one per leaf, undefined ones adding nothing: at once where all earlier
  /// micro-batches' are there, else when the last of these comes, so that sums are always made in ascending order.
  /// Every micro-batch of a step, from 0, gives its gradients once.
  void add_in_order(std::size_t micro_batch, Tensors gradients);
  /// Of the gradients that wait for earlier micro-batches'.
  std::int64_t waiting_bytes() const;

  /// What one use gathered; undefined where nothing came.
  torch::Tensor of_use(std::size_t use) const { return written_[use] ? buffers_[use] : torch::Tensor(); }
  /// The sum over the uses of each parameter, in graph order; undefined where nothing came, and for tied parameters:
  /// their uses are not all here. By parameter.
  Tensors sum_uses();

 private:
  std::vector<TrainedParameter> parameters_;
  Tensors leaves_;   // by use
  Tensors buffers_;  // by use
  std::vector<bool> written_;
  std::uint64_t step_ = 0;
  std::map<std::size_t, Tensors> waiting_;  // by micro-batch
  std::size_t next_ = 0;                    // the micro-batch whose gradients add_in_order() takes at once
};

}  // namespace penstock
