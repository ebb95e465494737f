// Stages without layers: the values that cross them are handed on by nodes of their own.
#pragma once

#include <vector>

#include "penstock/base/ids.h"
#include "penstock/model/graph.h"

namespace penstock {

/// Adds a "pass" node on every stage that has no node, for each value that is made before it and needed after it (or,
/// on the last stage, returned by the network). Returns the stages that had none.
std::vector<StageId> add_pass_nodes(Graph& graph, std::vector<StageId>& stage_of_node, int stages);

}  // namespace penstock
