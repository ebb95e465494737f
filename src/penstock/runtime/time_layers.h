// Combines the layer times that the ranks of a pipeline measured.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/stages.h"
#include "penstock/plan/stage_layers.h"
#include "penstock/runtime/layer_times.h"
#include "penstock/runtime/stage_clocks.h"
#include "penstock/trace/recorder.h"

namespace penstock {

/// Steps that Pipeline::time_layers runs before those that it times: one as warm-up, and one because accounts leave out
/// the first step of a trace (trace/account.h).
constexpr int untimed_steps = 2;

/// Combines the layer times of the ranks of one replica (StageClocks) with the trace of the same steps.
TimedSteps put_together(const StagedGraph& staged, const std::vector<NodeTimes>& nodes, const Trace& trace);

/// The names of the nodes of each stage, in the order of the graph.
StageLayers layers_by_stage(const StagedGraph& staged);

/// Writes the layers of each stage and, where known, their costs into the trace's settings, for advise(). Writes
/// nothing where a stage has no layers.
void note_layers(const StagedGraph& staged, const std::string& layer_costs, Trace& trace);

}  // namespace penstock
