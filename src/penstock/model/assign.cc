#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/model/stages.h"

namespace penstock {
namespace {

const char* kind(const Node& node) { return node.is_layer() ? "layer" : "function"; }

const Node* first_annotated(const Graph& graph) {
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.stage; });
  return found == graph.nodes.end() ? nullptr : &*found;
}

/// For each node, whether it depends on no graph input.
std::vector<bool> find_rootless(const Graph& graph) {
  std::vector<bool> rootless;
  for (const Node& node : graph.nodes)
    rootless.push_back(std::all_of(node.inputs.begin(), node.inputs.end(), [&](const ValueRef& input) {
      return !input.is_graph_input() && rootless[static_cast<std::size_t>(input.node)];
    }));
  return rootless;
}

/// Gives nodes that depend on no graph input and have no annotation the stage of their first user: on an earlier stage,
/// the value of a raw parameter would have to be sent with every micro-batch.
void follow_users(const Graph& graph, const std::vector<bool>& rootless, int stages,
                  std::vector<StageId>& stage_of_node) {
  std::vector<StageId> first_user(graph.nodes.size(), StageId(stages - 1));
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    if (rootless[n] && !graph.nodes[n].stage) stage_of_node[n] = first_user[n];
    for (const ValueRef& input : graph.nodes[n].inputs) {
      if (input.is_graph_input()) continue;
      StageId& first = first_user[static_cast<std::size_t>(input.node)];
      first = std::min(first, stage_of_node[n]);
    }
  }
}

}  // namespace

std::vector<StageId> assign_stages(const Graph& graph, int stages, const StageAdvice& advice) {
  require<ScheduleError>(stages >= 1, "a pipeline has at least one stage, not ", stages);
  if (stages == 1) return std::vector<StageId>(graph.nodes.size(), StageId(0));
  const std::vector<bool> rootless = find_rootless(graph);
  const Node* annotated = first_annotated(graph);
  if (!annotated) {
    std::vector<StageId> partition = advice.partition(graph);
    follow_users(graph, rootless, stages, partition);
    return partition;
  }

  std::vector<StageId> stage_of_node;
  for (const Node& node : graph.nodes) {
    StageId latest(0);
    std::string latest_name = "the network's input";
    for (const ValueRef& input : node.inputs) {
      if (input.is_graph_input()) continue;
      const StageId stage = stage_of_node[static_cast<std::size_t>(input.node)];
      if (stage >= latest) {
        latest = stage;
        latest_name = say("'", graph.nodes[static_cast<std::size_t>(input.node)].name, "'");
      }
    }
    if (!node.stage) {
      require<ScheduleError>(!node.is_layer() || node.is_parameter() || advice.parameters(node) == 0, "layer '",
                             node.name, "' has parameters but no pipeline_stage, while '", annotated->name, "' has ",
                             annotated->stage.value_or(0), ": give '", node.name, "' a stage too");
      stage_of_node.push_back(latest);
      continue;
    }
    const int stage = *node.stage;
    require<ScheduleError>(stage >= 0 && stage < stages, kind(node), " '", node.name, "' has pipeline_stage ", stage,
                           ", but the pipeline has ", stages, " stages (stages are 0..", stages - 1, ")");
    require<ScheduleError>(stage >= latest.value(), kind(node), " '", node.name, "' on stage ", stage, " needs ",
                           latest_name, " on stage ", latest.value(), ": stages must not decrease along the data flow");
    stage_of_node.push_back(StageId(stage));
  }
  follow_users(graph, rootless, stages, stage_of_node);
  return stage_of_node;
}

}  // namespace penstock
