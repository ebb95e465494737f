#include "penstock/model/stages.h"

#include <algorithm>
#include <map>
#include <set>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

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

const char* kind(const Node& node) { return node.is_layer() ? "layer" : "function"; }

/// The stages of annotations and, for layers with parameters but without one, of the neighbours' annotations.
std::vector<std::optional<int>> with_neighbours(const Graph& graph, const StageAdvice& advice) {
  std::vector<const Node*> after(graph.nodes.size(), nullptr);  // the next annotated node
  for (std::size_t n = graph.nodes.size(); n-- > 1;) after[n - 1] = graph.nodes[n].stage ? &graph.nodes[n] : after[n];
  std::vector<std::optional<int>> stages;
  std::vector<std::string> missing;
  std::string around;  // of the first of them
  const Node* before = nullptr;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    stages.push_back(node.stage);
    if (node.stage) before = &node;
    if (node.stage || !node.is_layer() || node.is_parameter() || advice.parameters(node) == 0) continue;
    const Node* one = before ? before : after[n];
    const Node* other = after[n] ? after[n] : before;
    stages.back() = one->stage;
    if (*one->stage == *other->stage) continue;
    if (missing.empty())
      around = say("'", one->name, "' has ", *one->stage, ", '", other->name, "' has ", *other->stage);
    missing.push_back(node.name);
  }
  require<ScheduleError>(missing.empty(), missing.size() == 1 ? "the layer " : "the layers ", in_ranges(missing),
                         " with parameters lie between different stages (", around, "): assign a pipeline_stage to ",
                         missing.size() == 1 ? "it" : "each of them");
  return stages;
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

std::vector<StageId> assign_stages(const Graph& graph, int stages, const StageAdvice& advice) {
  require<ScheduleError>(stages >= 1, "a pipeline has at least one stage, not ", stages);
  if (stages == 1) return std::vector<StageId>(graph.nodes.size(), StageId(0));
  const std::vector<bool> rootless = find_rootless(graph);
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.stage; })) {
    std::vector<StageId> partition = advice.partition(graph);
    follow_users(graph, rootless, stages, partition);
    return partition;
  }

  const std::vector<std::optional<int>> given = with_neighbours(graph, advice);
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
    const auto& own = given[stage_of_node.size()];
    if (!own || (!node.stage && StageId(*own) < latest)) {
      stage_of_node.push_back(latest);
      continue;
    }
    const int stage = *own;
    require<ScheduleError>(stage >= 0 && stage < stages, kind(node), " '", node.name, "' has pipeline_stage ", stage,
                           ", but the pipeline has ", stages, " stages (stages are 0..", stages - 1, ")");
    require<ScheduleError>(stage >= latest.value(), kind(node), " '", node.name, "' on stage ", stage, " needs ",
                           latest_name, " on stage ", latest.value(), ": stages must not decrease along the data flow");
    stage_of_node.push_back(StageId(stage));
  }
  follow_users(graph, rootless, stages, stage_of_node);
  return stage_of_node;
}

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

StageId ParameterUses::owner() const {
  const auto first = std::min_element(list.begin(), list.end(),
                                      [](const ParameterUse& a, const ParameterUse& b) { return a.stage < b.stage; });
  return first->stage;
}

bool ParameterUses::is_tied() const {
  return std::any_of(list.begin(), list.end(),
                     [&](const ParameterUse& use) { return use.stage != list.front().stage; });
}

bool ParameterUses::are_on(StageId stage) const {
  return std::any_of(list.begin(), list.end(), [&](const ParameterUse& use) { return use.stage == stage; });
}

ParameterUses uses_of(const StagedGraph& staged, const LayerRecord& owner, const std::string& parameter) {
  ParameterUses uses;
  for (std::size_t n = 0; n < staged.graph.nodes.size(); ++n) {
    const Node& node = staged.graph.nodes[n];
    const bool own = node.layer.get() == &owner;
    const bool tied = std::any_of(node.ties.begin(), node.ties.end(), [&](const auto& tie) {
      return tie.second.layer.get() == &owner && tie.second.name == parameter;
    });
    if (own || tied) uses.list.push_back({static_cast<int>(n), staged.stage_of_node[n]});
  }
  return uses;
}

}  // namespace penstock
