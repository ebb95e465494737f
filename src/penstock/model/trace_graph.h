// Records a network's forward as a graph.
#pragma once

#include "penstock/model/cell.h"
#include "penstock/model/graph.h"

namespace penstock {

/// Runs `network.forward` once on `inputs` symbolic values and records the calls. Throws ScheduleError for
/// contradicting annotations, for a forward that mixes real and symbolic values, and for one that returns nothing.
Graph trace_graph(Cell& network, int inputs = 1, const TraceSample& sample = {});

}  // namespace penstock
