// The parameters of one stage and the buffers their gradients gather in.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "penstock/model/layer.h"

namespace penstock {

/// One parameter, and every place that uses it. A layer that is called twice uses its parameters twice: each use is a
/// leaf of its own over the same values, with a gradient buffer of its own, so that the order of summation is fixed.
struct Parameter {
  std::string name;              // "layer1.weight"
  torch::Tensor value;           // the first use's leaf; what the optimiser steps
  std::vector<std::size_t> uses;  // in graph order
};

/// Whatever is added first to a buffer after begin_step() is written, what comes later is added: buffers are never
/// zeroed, and never memory that anyone else can see.
class Gradients {
 public:
  /// Adds the parameters of one more call of a layer.
  void add_call(const std::string& layer_path, const torch::nn::Module& module);

  /// Every use that wants a gradient, in graph order: what a backward pass differentiates for.
  const Tensors& leaves() const { return leaves_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  /// Where `leaf` stands in leaves().
  std::optional<std::size_t> use_of(const torch::Tensor& leaf) const;

  void begin_step();
  /// Adds one micro-batch's gradient of one use.
  void add(std::size_t use, torch::Tensor gradient);
  /// Adds a b, two matrices, without the product in between.
  void add_product(std::size_t use, const torch::Tensor& a, const torch::Tensor& b);
  /// Adds one gradient per leaf; undefined ones add nothing.
  void add_all(Tensors gradients);

  /// The sum over the uses of each parameter, in graph order; undefined where nothing came. By parameter.
  Tensors sum_uses();

 private:
  std::vector<Parameter> parameters_;
  Tensors leaves_;   // by use
  Tensors buffers_;  // by use
  std::vector<bool> written_;
};

}  // namespace penstock
