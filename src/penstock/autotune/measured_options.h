// Decides options by measuring on a sample: kernels, the partition "time", and the bytes of activations that a memory
// limit in bytes needs. Used inside this module only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "penstock/autotune/autotune_options.h"
#include "penstock/kernels/kernel_selection.h"
#include "penstock/model/cell.h"
#include "penstock/model/graph.h"
#include "penstock/model/loss.h"
#include "penstock/rank/options.h"
#include "penstock/schedule/stage_costs.h"
#include "penstock/world/world.h"

namespace penstock {
namespace layers {
struct Autocast;
}

struct MeasuredOptions {
  PipelineOptions options;
  double kernel_gain = 1;  // TunedKernels::gain, if kernels were measured
};

/// Returns `options` with the fastest kernel_selection under Kernels::tuned, and with the partition "time" replaced by
/// the partition found. Options that need no measurement are returned unchanged. World rank 0 measures, on one
/// micro-batch of `batch`, the network's inputs, and all ranks get its result. Collective. Throws ConfigError if a
/// measurement needs a batch and there is none.
MeasuredOptions measured_options(World& world, Cell& network, PipelineOptions options,
                                 const std::vector<torch::Tensor>& batch);

/// Whether the memory limit of `options` is in bytes, and PipelineOptions::costs do not say how many a micro-batch's
/// activations have.
bool needs_bytes(const PipelineOptions& options);

/// `options` without a memory limit in bytes: for decisions that do not depend on it, made before bytes are known.
PipelineOptions without_bytes(PipelineOptions options);

/// PipelineOptions::costs (unit costs where there are none) with the activation_bytes and the weight_share that two
/// training steps of `options` show on the sample of `how`, one micro-batch at a time. Where the schedule of
/// `options` splits any B, a stage counts with the larger of its bytes before and after I, and the weight share is
/// the largest of all stages: no stage needs more. Partition, kernels and m of `options` are decided. Collective;
/// every process gets the same. Throws ConfigError without a sample.
StageCosts measured_bytes(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                          const AutotuneOptions& how);

/// The time of forward plus backward of every node of `graph` in seconds, on `sample` (the network's inputs) with
/// `kernels`, and `autocast` in the forward pass: the best of up to three runs after one warm-up run, fewer of layers
/// that take long. Calls `at` before each node. Uses the intra-op threads of the calling thread.
std::vector<double> measured_times(const Graph& graph, const std::vector<torch::Tensor>& sample,
                                   const std::shared_ptr<const kernels::KernelSelection>& kernels,
                                   const layers::Autocast& autocast, const std::function<void(const Node&)>& at);

/// Returns the partition that minimises the time of the slowest rank, if nodes take `seconds` each and messages take no
/// time, and that cuts no block unless there are too few (with a warning): the name of the first layer of each stage
/// except the first, in the form that plan/partition.h reads. Throws ScheduleError if there are fewer layers than
/// stages.
std::string fastest_partition(const Graph& graph, const std::vector<double>& seconds,
                              const std::vector<Rank>& rank_of_stage);

}  // namespace penstock
