// The cut "time": layers measured on a sample, and cut so that the slowest rank is as fast as can be.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/graph.h"
#include "penstock/runtime/world.h"

namespace penstock {

/// Seconds of forward and backward of every node of `graph` on `sample`, tensors that the network takes: the best of
/// three times, after one that does not count. Builds all layers, one after the other, as the rank builds them that is
/// to run them. For the thread that runs it.
std::vector<double> measured_times(const Graph& graph, const std::vector<torch::Tensor>& sample);

/// The first layer of each stage but the first, as plan/cut.h reads them: of the cut whose slowest rank is the fastest
/// for layers that take `seconds` each. Messages between stages do not count. Throws PlanError where there are fewer
/// layers than stages.
std::string fastest_cut(const Graph& graph, const std::vector<double>& seconds, const std::vector<Rank>& rank_of_stage);

/// Measures on world rank 0 and tells all: the same cut everywhere. Collective. `sample` is looked at on world rank 0
/// alone. Throws ConfigError where there is none.
std::string agree_on_fastest_cut(const World& world, std::uint32_t pipeline, const Graph& graph,
                                 const std::vector<torch::Tensor>& sample, const std::vector<Rank>& rank_of_stage);

}  // namespace penstock
