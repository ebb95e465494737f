// Stages without layers: nodes that pass the values through which cross them.
#pragma once

#include <vector>

#include "penstock/base/ids.h"
#include "penstock/model/graph.h"

namespace penstock {

/// Adds a "pass" node to every stage that has no node, for each value that is produced before it and used after it (or,
/// on the last stage, returned by the network). Returns the stages that had no node.
std::vector<StageId> add_pass_nodes(Graph& graph, std::vector<StageId>& stage_of_node, int stages);

}  // namespace penstock
