#include "penstock/model/stages.h"

#include <algorithm>
#include <map>
#include <set>

#include "penstock/base/error.h"
#include "penstock/model/pass_through.h"

namespace penstock {
namespace {

/// The values sent from one stage to another, in order.
using Crossings = std::map<std::pair<StageId, StageId>, std::set<ValueRef>>;

void check_partition(const Graph& graph, const std::vector<StageId>& stage_of_node, int stages) {
  require<ScheduleError>(stage_of_node.size() == graph.nodes.size(), "the partition names ", stage_of_node.size(),
                         " stages for a network of ", graph.nodes.size(), " nodes: one for each node");
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    require<ScheduleError>(stage_of_node[n] >= StageId(0) && stage_of_node[n] < StageId(stages), "the partition puts '",
                           graph.nodes[n].name, "' on stage ", stage_of_node[n].value(), ", but there are ", stages);
    for (const ValueRef& input : graph.nodes[n].inputs)
      require<ScheduleError>(
          input.is_graph_input() || stage_of_node[static_cast<std::size_t>(input.node)] <= stage_of_node[n],
          "the partition puts '", graph.nodes[n].name, "' on stage ", stage_of_node[n].value(), ", before '",
          graph.name_of(input), "', which it needs: stages must not decrease along the data flow");
  }
}

}  // namespace

StagedGraph partition_graph(Graph graph, std::vector<StageId> stage_of_node, int stages) {
  check_partition(graph, stage_of_node, stages);
  StagedGraph staged;
  for (const std::string& layer : graph.uncalled)
    staged.warnings.push_back(say("layer '", layer, "' was added, but forward never calls it: it is neither trained ",
                                  "nor saved; call it, or remove it"));
  for (StageId stage : add_pass_nodes(graph, stage_of_node, stages))
    staged.warnings.push_back(say("stage ", stage.value(), " of ", stages,
                                  " has no layers: it passes values through, and its rank adds nothing"));

  for (int s = 0; s < stages; ++s) staged.parts.push_back({StageId(s), {}, {}, {}, {}, {}});
  const StageId last(stages - 1);
  Crossings crossings;
  std::vector<std::set<int>> read(static_cast<std::size_t>(stages));
  const auto needs = [&](StageId consumer, const ValueRef& value) {
    if (value.is_graph_input()) {
      read[consumer.index()].insert(value.output);
      return;
    }
    const StageId producer = stage_of_node[static_cast<std::size_t>(value.node)];
    if (producer != consumer) crossings[{producer, consumer}].insert(value);
  };
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const StageId stage = stage_of_node[n];
    staged.parts[stage.index()].nodes.push_back(static_cast<int>(n));
    for (const ValueRef& input : graph.nodes[n].inputs) needs(stage, input);
  }
  for (const ValueRef& output : graph.outputs) needs(last, output);

  for (const auto& [ends, values] : crossings) {
    const std::vector<ValueRef> ordered(values.begin(), values.end());
    staged.parts[ends.first.index()].sends.push_back({ends.second, ordered});
    staged.parts[ends.second.index()].receives.push_back({ends.first, ordered});
  }
  for (StagePart& part : staged.parts) {
    part.graph_inputs.assign(read[part.id.index()].begin(), read[part.id.index()].end());
    const auto by_peer = [](const Port& a, const Port& b) { return a.peer < b.peer; };
    std::sort(part.sends.begin(), part.sends.end(), by_peer);
    std::sort(part.receives.begin(), part.receives.end(), by_peer);
  }
  staged.parts.back().outputs = graph.outputs;
  staged.graph = std::move(graph);
  staged.stage_of_node = std::move(stage_of_node);
  return staged;
}

}  // namespace penstock
