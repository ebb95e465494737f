// Partitions a network into stages: by its annotations or, without annotations, by the partitioner.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/stages.h"
#include "penstock/rank/optimizer.h"
#include "penstock/rank/options.h"
#include "penstock/schedule/dependencies.h"

namespace penstock {

/// The sample for tracing: the shapes of PipelineOptions::example_inputs; empty if there are none.
TraceSample trace_sample(const PipelineOptions& options);
/// Replaces each tensor by one of the same shape and dtype without data, which suffices after all measurements.
void keep_only_shapes(std::vector<torch::Tensor>& tensors);

/// Traces the network and partitions it into `stages`. Throws ScheduleError or ConfigError.
StagedGraph partition_network(Cell& network, const PipelineOptions& options, int stages);

/// The links of a partitioned network. A link carries gradients where a layer before it trains.
Links links_of(const StagedGraph& staged, const std::vector<bool>& node_trains);

/// Whether any parameter that trains may be used on more than one stage.
bool has_ties(const StagedGraph& staged, const std::vector<bool>& node_trains);

/// The parameters of the network with their full names, tied ones once. Builds layers temporarily.
std::vector<NamedParameter> all_parameters(const StagedGraph& staged, std::uint64_t seed);

/// Node::in_block of each node.
std::vector<std::string> blocks_of(const Graph& graph);

/// The partition in one line, for comparing ranks.
std::string outline(const StagedGraph& staged);

}  // namespace penstock
