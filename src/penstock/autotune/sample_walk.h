// The network's nodes, one after the other, on a sample: for measuring them where no stage is built yet.
#pragma once

#include <functional>

#include "penstock/model/graph.h"
#include "penstock/runtime/options.h"

namespace penstock {

/// A node with what came to it.
struct SampleCall {
  const Node& node;
  const BuiltLayer* layer;  // null for a function
  const Tensors& inputs;

  /// Whether nothing that has parameters comes before it.
  bool reads_sample() const;
};

/// Calls `visit` for every node of `graph` in order; it returns the node's outputs. Builds all layers, one after the
/// other, as the rank builds them that is to run them: for tuned kernels, or for fixed ones. For the thread that runs
/// it.
void walk_sample(const Graph& graph, const Tensors& sample, Kernels kernels,
                 const std::function<Tensors(const SampleCall&)>& visit);

}  // namespace penstock
