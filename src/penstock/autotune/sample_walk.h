// Runs the network's nodes one after the other on a sample, to measure them before stages are built.
#pragma once

#include <functional>

#include "penstock/model/graph.h"
#include "penstock/runtime/options.h"

namespace penstock {

/// A node with its inputs.
struct SampleCall {
  const Node& node;
  const BuiltLayer* layer;  // null for a function
  const Tensors& inputs;

  /// Whether its inputs depend on no parameters.
  bool reads_sample() const;
};

/// Calls `visit` for every node of `graph` in order; it returns the node's outputs. Builds each layer before its call,
/// as a rank with `kernels` builds it.
void walk_sample(const Graph& graph, const Tensors& sample, Kernels kernels,
                 const std::function<Tensors(const SampleCall&)>& visit);

}  // namespace penstock
