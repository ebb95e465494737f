// A graph partitioned into stages: which stage runs which nodes, and what travels between them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/model/graph.h"

namespace penstock {

/// What one stage hands to, or gets from, another stage for each micro-batch: these values, in this order.
struct Port {
  StageId peer;
  std::vector<ValueRef> values;
};

/// One stage's part of the graph.
struct StagePart {
  StageId id;
  std::vector<int> nodes;         // in execution order
  std::vector<int> graph_inputs;  // which graph inputs it reads itself
  std::vector<Port> receives;     // by producer stage, ascending
  std::vector<Port> sends;        // by consumer stage, ascending
  std::vector<ValueRef> outputs;  // the graph's outputs: the last stage's alone
};

struct StagedGraph {
  Graph graph;  // with nodes for stages that only pass values through
  std::vector<StageId> stage_of_node;
  std::vector<StagePart> parts;       // size S
  std::vector<std::string> warnings;  // for people: stages without layers, layers without calls

  int stage_count() const { return static_cast<int>(parts.size()); }
};

/// What assign_stages asks when it needs to know more than the graph tells.
struct StageAdvice {
  /// Number of parameters of a layer (it may have to be built to know).
  std::function<std::int64_t(const Node&)> parameters;
  /// Chooses a stage per node, ascending, where no layer has one.
  std::function<std::vector<StageId>(const Graph&)> partition;
};

/// The stage of every node, from the annotations:
///   * graph inputs count as stage 0; a node without stage and parameters follows its latest input
///   * what no input leads to - a raw parameter, a function of some - has no latest input: it goes to its first user
///   * a stage outside 0..stages-1, a layer with parameters but no stage while others have one, and a stage that
///     decreases along the data flow are errors (ScheduleError) that name the layers
///   * with one stage in all, everything is on it, whatever the annotations say: the program for one device
///   * without any annotation, `advice.partition` chooses
std::vector<StageId> assign_stages(const Graph& graph, int stages, const StageAdvice& advice);

/// Partitions `graph` as `stage_of_node` says. A value goes straight from its producer to every later stage that needs it.
/// A stage without nodes passes on whatever crosses it, and is warned about.
StagedGraph partition_graph(Graph graph, std::vector<StageId> stage_of_node, int stages);

}  // namespace penstock
