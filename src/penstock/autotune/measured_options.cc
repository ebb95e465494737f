#include "penstock/autotune/measured_options.h"

#include <algorithm>

#include "penstock/autotune/measured_bytes.h"
#include "penstock/autotune/partition_by_time.h"
#include "penstock/autotune/tune.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/model/graph.h"
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/partition_network.h"
#include "penstock/runtime/schedule_cache.h"
#include "penstock/schedule/schedule.h"

namespace penstock {
namespace {

Tensors micro_batch_of(const PipelineOptions& options, int replicas) {
  const BatchAxes axes("sample", options.input_layout);
  const std::int64_t parts = std::int64_t{options.micro_batches} * replicas;
  const bool is_there = std::all_of(options.sample.begin(), options.sample.end(),
                                    [](const torch::Tensor& input) { return input.defined() && input.numel() > 0; });
  const std::int64_t rows = is_there ? axes.samples(options.sample) : 0;
  return rows > 0 ? axes.rows(options.sample, {0, std::max<std::int64_t>(1, rows / parts)}) : options.sample;
}

bool is_annotated(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.stage.has_value(); });
}

}  // namespace

PipelineOptions measured_options(World& world, Cell& network, PipelineOptions options) {
  const bool wants_kernels = options.kernels == Kernels::tuned && options.kernel_selection.empty();
  require_kernels(options.kernels);
  if (wants_kernels || options.partition == "time") {
    const Schedule training = ScheduleCache({.options = without_bytes(options), .ranks = world.stages()}).training();
    const Graph graph = trace_graph(network, options.inputs, trace_sample(options));
    const Tensors sample = micro_batch_of(options, world.replicas());
    const SampleAgreement agreement{world, world.next_pipeline(), graph, sample};
    if (wants_kernels)
      options.kernel_selection =
          agree_on_kernels(agreement, {.compute_type = options.precision == Precision::fp32
                                                           ? torch::kFloat32
                                                           : autocast_for(options.precision, c10::kCPU).type,
                                       .weight_gradients = weight_gradients_of(training),
                                       .micro_batches = options.micro_batches})
              .to_text();
    if (options.partition == "time" && !is_annotated(graph))
      options.partition = agree_on_fastest_partition(agreement, kernels_from(options.kernels, options.kernel_selection),
                                                     training.rank_of_stage);
  }
  return options;
}

}  // namespace penstock
