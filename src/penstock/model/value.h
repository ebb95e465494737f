// What flows through Cell::forward: a real tensor when a network runs standalone, a symbol while it is traced.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <torch/types.h>

namespace penstock {

using Tensors = std::vector<torch::Tensor>;
using TensorFunction = std::function<Tensors(const Tensors&)>;

class Tracer;

/// Where a value comes from: output `output` of node `node`, or graph input number `output` when node is -1.
struct ValueRef {
  int node = -1;
  int output = 0;

  bool is_graph_input() const { return node < 0; }
  friend auto operator<=>(const ValueRef&, const ValueRef&) = default;
};

class Value {
 public:
  Value(torch::Tensor tensor) : tensor_(std::move(tensor)) {}  // NOLINT: tensors are values, implicitly

  bool is_symbolic() const { return tracer_ != nullptr; }
  /// The tensor. Throws PlanError, naming the layer that made it, for a symbolic value: use apply() for code that
  /// needs to look at sizes or contents.
  const torch::Tensor& tensor() const;
  /// The size of one dimension; throws like tensor().
  std::int64_t size(std::int64_t dimension) const;
  /// The truth of a one-element tensor; throws like tensor().
  explicit operator bool() const;

 private:
  friend class Tracer;
  Value(Tracer& tracer, ValueRef ref) : tracer_(&tracer), ref_(ref) {}

  torch::Tensor tensor_;
  Tracer* tracer_ = nullptr;
  ValueRef ref_;
};

using Values = std::vector<Value>;

/// Any tensor code as one node of the graph: sizes and data-dependent control flow may live inside `function`.
/// Throws PlanError when symbolic and real values are mixed.
Values apply(const std::string& name, const TensorFunction& function, const Values& inputs, int outputs);
Value apply(const std::string& name, const std::function<torch::Tensor(const Tensors&)>& function,
            const Values& inputs);

}  // namespace penstock
