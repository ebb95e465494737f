// Timed steps of a pipeline: what its ranks noted, put together.
#pragma once

#include <map>

#include "penstock/model/stages.h"
#include "penstock/plan/stage_layers.h"
#include "penstock/runtime/layer_times.h"
#include "penstock/trace/recorder.h"

namespace penstock {

/// Steps that Pipeline::time_layers runs before those that it times: one warms caches, one more is left out of an
/// account (trace/account.h).
constexpr int untimed_steps = 2;

/// From what every rank's layers took (RankRunner::timed_nodes, gathered) and the trace of the same steps.
TimedSteps put_together(const StagedGraph& staged, const std::map<std::string, torch::Tensor>& timed_nodes,
                        const Trace& trace);

/// The names of the nodes of each stage, in the order of the graph.
StageLayers layers_by_stage(const StagedGraph& staged);

/// Writes into the trace's settings which layers each stage has and, where that is known, what they cost: what advise()
/// goes by. Nothing where a stage has none.
void note_layers(const StagedGraph& staged, const std::string& layer_costs, Trace& trace);

}  // namespace penstock
