// From a network's forward to its graph.
#pragma once

#include "penstock/model/cell.h"
#include "penstock/model/graph.h"

namespace penstock {

/// Runs `network.forward` once on symbolic values. Throws ScheduleError for contradicting annotations, a network that
/// mixes real and symbolic values, or one that returns nothing.
Graph trace_graph(Cell& network, int inputs = 1, const TraceSample& sample = {});

}  // namespace penstock
