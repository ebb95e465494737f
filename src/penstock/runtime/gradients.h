// The parameters of one stage and the buffers their gradients gather in.
#pragma once

#include <cstddef>
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

class Gradients {
 public:
  /// Adds the parameters of one more call of a layer. `first_use`: whether the layer was not called before here.
  void add_call(const std::string& layer_path, const torch::nn::Module& module);

  /// Every use that wants a gradient, in graph order: what a backward pass differentiates for.
  const Tensors& leaves() const { return leaves_; }
  const std::vector<Parameter>& parameters() const { return parameters_; }

  /// Adds one micro-batch's gradients, one per leaf; undefined ones add nothing. The first after begin_step() is
  /// written, later ones are added: buffers are never zeroed. Never keeps memory that anyone else can see.
  void accumulate(Tensors gradients);
  void begin_step();

  /// The sum over the uses of each parameter, in graph order; undefined where nothing came. By parameter.
  Tensors sum_uses();

 private:
  std::vector<Parameter> parameters_;
  Tensors leaves_;   // by use
  Tensors buffers_;  // by use
  std::vector<bool> written_;
};

}  // namespace penstock
