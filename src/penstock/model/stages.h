// A graph partitioned into stages: which stage runs which nodes, and which values they exchange.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/model/graph.h"

namespace penstock {

/// The values that one stage sends to, or receives from, another stage for each micro-batch, in this order.
struct Port {
  StageId peer;
  std::vector<ValueRef> values;
};

/// One stage's part of the graph.
struct StagePart {
  StageId id;
  std::vector<int> nodes;         // in execution order
  std::vector<int> graph_inputs;  // indices of the graph inputs that its nodes read
  std::vector<Port> receives;     // ascending by producer stage
  std::vector<Port> sends;        // ascending by consumer stage
  std::vector<ValueRef> outputs;  // the graph's outputs; empty on all but the last stage
};

struct StagedGraph {
  Graph graph;  // with the added nodes of stages that only pass values through
  std::vector<StageId> stage_of_node;
  std::vector<StagePart> parts;       // size S
  std::vector<std::string> warnings;  // for people: stages without layers, layers without calls

  int stage_count() const { return static_cast<int>(parts.size()); }
};

/// Callbacks of assign_stages for information that the graph does not contain.
struct StageAdvice {
  /// Number of parameters of a layer (may have to build the layer).
  std::function<std::int64_t(const Node&)> parameters;
  /// Chooses a stage per node, ascending, for a graph without annotations.
  std::function<std::vector<StageId>(const Graph&)> partition;
};

/// Computes the stage of every node from the annotations:
///   * graph inputs count as stage 0; a node without annotation and parameters has the stage of its latest input
///   * a layer with parameters and without annotation has the stage of the annotated nodes before and after it in the
///     graph, of which one side may be missing. Where they differ it is a ScheduleError that names all such layers
///   * a node that depends on no graph input (a raw parameter, or a function of raw parameters) has the stage of its
///     first user
///   * a stage outside 0..stages-1, and a stage that decreases along the data flow, are ScheduleErrors that name the
///     layers
///   * if `stages` is 1, every node has stage 0, whatever the annotations: the same program runs on one device
///   * if there is no annotation at all, `advice.partition` chooses
std::vector<StageId> assign_stages(const Graph& graph, int stages, const StageAdvice& advice);

/// Partitions `graph` according to `stage_of_node`. A value is sent directly from its producer to every later stage
/// that uses it. A stage without nodes passes on the values that cross it, and adds a warning.
StagedGraph partition_graph(Graph graph, std::vector<StageId> stage_of_node, int stages);

/// Adds a "pass" node to every stage that has no node, for each value that is produced before it and used after it (or,
/// on the last stage, returned by the network). Returns the stages that had no node.
std::vector<StageId> add_pass_nodes(Graph& graph, std::vector<StageId>& stage_of_node, int stages);

/// One call that uses a parameter.
struct ParameterUse {
  int node = 0;
  StageId stage;
};

/// All uses of one parameter, in graph order.
struct ParameterUses {
  std::vector<ParameterUse> list;

  /// The lowest stage that uses it. The owner stage sums its gradient, saves it and counts it in norms.
  StageId owner() const;
  /// Whether several stages use it.
  bool is_tied() const;
  /// Whether `stage` uses it.
  bool are_on(StageId stage) const;
};

/// The uses of `parameter` of `owner` (which is itself not tied to another one): by calls of its own layer and by calls
/// of the layers that are tied to it. Empty if `owner` has no such parameter.
ParameterUses uses_of(const StagedGraph& staged, const LayerRecord& owner, const std::string& parameter);

}  // namespace penstock
