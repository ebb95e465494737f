// The partition "time": measures layers on a sample, and minimises the time of the slowest rank.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/autotune/sample_agreement.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/model/graph.h"

namespace penstock {

/// The time of forward plus backward of every node of `graph` in seconds, on `sample` (the network's inputs) with
/// `kernels`: the best of three runs after one warm-up run. Uses the intra-op threads of the calling thread.
std::vector<double> measured_times(const Graph& graph, const std::vector<torch::Tensor>& sample,
                                   const std::shared_ptr<const KernelSelection>& kernels);

/// The partition with the fastest slowest rank for nodes that take `seconds` each, without the time of messages.
/// Returns the names of the first layer of each stage but the first, in the form that plan/partition.h reads. Throws
/// ScheduleError where there are fewer layers than stages.
std::string fastest_partition(const Graph& graph, const std::vector<double>& seconds,
                              const std::vector<Rank>& rank_of_stage);

/// Measures and partitions on world rank 0, and returns its partition on every rank. Collective.
std::string agree_on_fastest_partition(const SampleAgreement& agreement,
                                       const std::shared_ptr<const KernelSelection>& kernels,
                                       const std::vector<Rank>& rank_of_stage);

}  // namespace penstock
