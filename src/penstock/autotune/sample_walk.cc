#include "penstock/autotune/sample_walk.h"

#include <algorithm>
#include <map>
#include <optional>

#include "penstock/layers/fast_layers.h"
#include "penstock/model/random_place.h"

namespace penstock {

bool SampleCall::reads_sample() const {
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [](const ValueRef& input) { return input.is_graph_input(); });
}

void walk_sample(const Graph& graph, const Tensors& sample, Kernels kernels,
                 const std::function<Tensors(const SampleCall&)>& visit) {
  RandomPlace place;
  const RandomPlaceGuard guard(place);
  std::map<ValueRef, torch::Tensor> values;
  for (std::size_t i = 0; i < sample.size(); ++i) values[{-1, static_cast<int>(i)}] = sample[i];
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    place.begin_call(node.name);
    std::optional<BuiltLayer> layer;
    if (node.is_layer()) layer = build_layer(node.layer->factory, {.seed = 0, .layer = node.layer_path});
    if (layer && kernels == Kernels::tuned) make_fast(*layer);
    Tensors inputs;
    for (const ValueRef& input : node.inputs) inputs.push_back(values.at(input));
    const Tensors outputs = visit({node, layer ? &*layer : nullptr, inputs});
    for (std::size_t i = 0; i < outputs.size(); ++i)
      values[{static_cast<int>(n), static_cast<int>(i)}] = outputs[i].defined() ? outputs[i].detach() : outputs[i];
  }
}

}  // namespace penstock
