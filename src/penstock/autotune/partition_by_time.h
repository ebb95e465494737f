// The partition "time": layers measured on a sample, and partition so that the slowest rank is as fast as can be.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "penstock/autotune/sample_agreement.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/model/graph.h"

namespace penstock {

/// Seconds of forward and backward of every node of `graph` on `sample`, tensors that the network takes, with the
/// kernels of a rank: the best of three times, after one that does not count. For the thread that runs it.
std::vector<double> measured_times(const Graph& graph, const std::vector<torch::Tensor>& sample,
                                   const std::shared_ptr<const KernelSelection>& kernels);

/// The first layer of each stage but the first, as plan/partition.h reads them: of the partition whose slowest rank is the fastest
/// for layers that take `seconds` each. Messages between stages do not count. Throws ScheduleError where there are fewer
/// layers than stages.
std::string fastest_partition(const Graph& graph, const std::vector<double>& seconds,
                              const std::vector<Rank>& rank_of_stage);

/// The same partition on every rank. Collective.
std::string agree_on_fastest_partition(const SampleAgreement& agreement,
                                       const std::shared_ptr<const KernelSelection>& kernels,
                                       const std::vector<Rank>& rank_of_stage);

}  // namespace penstock
