#include "penstock/pipeline/partition_network.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/model/graph.h"
#include "penstock/plan/partition.h"

namespace penstock {
namespace {

std::int64_t parameters_of(const Node& node) {
  std::int64_t count = 0;
  if (node.is_layer())
    for (const auto& parameter : shapes_of(*node.layer).parameters) count += parameter.value().numel();
  return count;
}

/// A measure of the layer's work: an embedding only looks its parameters up.
std::int64_t multiplied_parameters_of(const Node& node) {
  return node.is_layer() && shapes_of(*node.layer).looks_up ? 0 : parameters_of(node);
}

/// Parameters may be tied across stages. Buffers may not: running statistics would have to be sent with every call.
void refuse_buffers_on_several_stages(const Graph& graph, const std::vector<StageId>& stage_of_node) {
  std::map<const LayerRecord*, std::size_t> first_use;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!node.is_layer()) continue;
    const auto [first, is_new] = first_use.try_emplace(node.layer.get(), n);
    if (is_new || stage_of_node[first->second] == stage_of_node[n]) continue;
    require<ScheduleError>(shapes_of(*node.layer).buffers.is_empty(), "layer '", node.layer_path, "' is used on stage ",
                           stage_of_node[first->second].value(), " and, as '", node.name, "', on stage ",
                           stage_of_node[n].value(),
                           ", and has buffers (running statistics) that both uses would change: "
                           "put both on one stage");
  }
}

}  // namespace

TraceSample trace_sample(const PipelineOptions& options) { return {options.example_inputs, options.batch_dims.inputs}; }

void keep_only_shapes(std::vector<torch::Tensor>& tensors) {
  for (torch::Tensor& tensor : tensors)
    if (tensor.defined()) tensor = torch::empty_like(tensor, tensor.options().device(torch::kMeta));
}

StagedGraph partition_network(Cell& network, const PipelineOptions& options, int stages) {
  Graph graph = trace_graph(network, options.inputs, trace_sample(options));
  for (Node& node : graph.nodes) node.recompute = node.recompute.value_or(options.recompute);
  std::string remark;
  const auto partition = [&](const Graph& whole) {
    require<ConfigError>(options.partition != "time",
                         "partition 'time' is found by measuring: pass the options to autotune() first");
    const bool by_parameters = options.partition == "parameters";
    if (by_parameters || options.partition == "uniform") remark = remark_on_blocks(blocks_of(whole), stages);
    std::vector<LayerSize> layers;
    for (const Node& node : whole.nodes)
      layers.push_back({node.name, by_parameters ? multiplied_parameters_of(node) : 0, node.cell, node.in_block});
    return partition_layers(options.partition, layers, stages);
  };
  std::vector<StageId> stage_of_node =
      assign_stages(graph, stages, {.parameters = parameters_of, .partition = partition});
  refuse_buffers_on_several_stages(graph, stage_of_node);
  StagedGraph staged = partition_graph(std::move(graph), std::move(stage_of_node), stages);
  if (!remark.empty()) staged.warnings.push_back("the partition cuts blocks: " + remark);
  return staged;
}

std::vector<std::string> blocks_of(const Graph& graph) {
  std::vector<std::string> blocks;
  for (const Node& node : graph.nodes) blocks.push_back(node.in_block);
  return blocks;
}

Links links_of(const StagedGraph& staged, const std::vector<bool>& node_trains) {
  std::vector<bool> wants_grad(staged.graph.nodes.size());
  // By stage, because nodes that pass values through come last in the list but not in the order of computation.
  for (const StagePart& part : staged.parts)
    for (int n : part.nodes) {
      const auto index = static_cast<std::size_t>(n);
      wants_grad[index] = node_trains[index];
      for (const ValueRef& input : staged.graph.nodes[index].inputs)
        if (!input.is_graph_input() && wants_grad[static_cast<std::size_t>(input.node)]) wants_grad[index] = true;
    }
  Links links;
  for (const StagePart& part : staged.parts)
    for (const Port& port : part.sends) {
      const bool gradient = std::any_of(port.values.begin(), port.values.end(), [&](const ValueRef& v) {
        return wants_grad[static_cast<std::size_t>(v.node)];
      });
      links.push_back({part.id, port.peer, gradient});
    }
  return links;
}

bool has_ties(const StagedGraph& staged, const std::vector<bool>& node_trains) {
  std::map<const LayerRecord*, StageId> stage_of_layer;  // of layers that have or own parameters that train
  const auto& nodes = staged.graph.nodes;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    if (!node_trains[n]) continue;
    const auto is_elsewhere = [&](const std::shared_ptr<LayerRecord>& layer) {
      return stage_of_layer.try_emplace(layer.get(), staged.stage_of_node[n]).first->second != staged.stage_of_node[n];
    };
    if (nodes[n].layer && is_elsewhere(nodes[n].layer)) return true;
    for (const auto& [name, owner] : nodes[n].ties)
      if (is_elsewhere(owner.layer)) return true;
  }
  return false;
}

std::vector<NamedParameter> all_parameters(const StagedGraph& staged, std::uint64_t seed) {
  std::vector<NamedParameter> all;
  std::set<std::string> known;
  for (const Node& node : staged.graph.nodes) {
    if (!node.is_layer() || !known.insert(node.layer_path).second) continue;
    const BuiltLayer built = build_layer(node.layer->factory, {.seed = seed, .layer = node.layer_path});
    for (const auto& parameter : built.module->named_parameters())
      if (!node.ties.contains(parameter.key()))
        all.push_back({full_name(*node.layer, node.layer_path, parameter.key()), parameter.value()});
  }
  return all;
}

std::string outline(const StagedGraph& staged) {
  std::string text;
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n)
    text += say(staged.graph.nodes[n].name, "@", staged.stage_of_node[n].value(),
                staged.graph.nodes[n].recompute.value_or(false) ? " again " : " ");
  return text;
}

}  // namespace penstock
