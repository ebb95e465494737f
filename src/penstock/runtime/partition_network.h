// From a network and the options to stages: annotations where there are any, the partitioner otherwise.
#pragma once

#include <string>
#include <vector>

#include "penstock/model/stages.h"
#include "penstock/runtime/optimizer.h"
#include "penstock/runtime/options.h"
#include "penstock/schedule/dependencies.h"

namespace penstock {

/// What to trace with: the shapes of the sample, where there is one.
TraceSample trace_sample(const PipelineOptions& options);
/// The sample without its numbers: all that is needed of it once everything was measured.
void keep_shapes_alone(std::vector<torch::Tensor>& sample);

/// Traces and partitions. Builds a layer for a moment where its number of parameters has to be known.
StagedGraph partition_network(Cell& network, const PipelineOptions& options, int stages);

/// The links of a partition network. One carries gradients where anything before it trains.
Links links_of(const StagedGraph& staged, const std::vector<bool>& node_trains);

/// Whether any parameter that trains may be used on more than one stage.
bool has_ties(const StagedGraph& staged, const std::vector<bool>& node_trains);

/// That `name` is a parameter of the network, or a layer or Cell with parameters. Throws ConfigError.
void require_parameters(const StagedGraph& staged, const std::string& name, std::uint64_t seed);

/// The parameters of the network, by full name, a tied one once; from layers that are built for a moment.
std::vector<NamedParameter> all_parameters(const StagedGraph& staged, std::uint64_t seed);

/// The partition in one line: what ranks compare.
std::string outline(const StagedGraph& staged);

}  // namespace penstock
