#include "penstock/model/pass_through.h"

#include <algorithm>
#include <map>
#include <set>

#include "penstock/base/error.h"

namespace penstock {

std::vector<StageId> add_pass_nodes(Graph& graph, std::vector<StageId>& stage_of_node, int stages) {
  std::vector<StageId> empty;
  std::map<ValueRef, ValueRef> passes;  // for the output of each pass node, the value that it passes on
  const StageId last(stages - 1);
  for (StageId stage(0); stage <= last; stage = stage.next()) {
    if (std::find(stage_of_node.begin(), stage_of_node.end(), stage) != stage_of_node.end()) continue;
    empty.push_back(stage);

    const auto made_before = [&](const ValueRef& v) {
      return v.is_graph_input() || stage_of_node[static_cast<std::size_t>(v.node)] < stage;
    };
    std::set<ValueRef> crossing;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
      if (stage_of_node[n] > stage)
        std::copy_if(graph.nodes[n].inputs.begin(), graph.nodes[n].inputs.end(),
                     std::inserter(crossing, crossing.end()), made_before);
    std::copy_if(graph.outputs.begin(), graph.outputs.end(), std::inserter(crossing, crossing.end()), made_before);

    const std::size_t nodes_before = graph.nodes.size();
    for (const ValueRef& value : crossing) {
      const ValueRef passed{static_cast<int>(graph.nodes.size()), 0};
      for (std::size_t n = 0; n < nodes_before; ++n)
        if (stage_of_node[n] > stage)
          std::replace(graph.nodes[n].inputs.begin(), graph.nodes[n].inputs.end(), value, passed);
      std::replace(graph.outputs.begin(), graph.outputs.end(), value, passed);
      Node pass;
      const ValueRef origin = passes.contains(value) ? passes.at(value) : value;
      passes[passed] = origin;
      pass.name = say("pass ", graph.name_of(origin), " through stage ", stage.value());
      // A view, so that the value gets a node in the autograd graph at no cost; it passes gradients through unchanged.
      pass.function = [](const Tensors& x) { return Tensors{x[0].defined() ? x[0].view_as(x[0]) : x[0]}; };
      pass.inputs = {value};
      graph.nodes.push_back(std::move(pass));
      stage_of_node.push_back(stage);
    }
  }
  return empty;
}

}  // namespace penstock
