#include "penstock/runtime/decide.h"

#include <algorithm>

#include "penstock/runtime/autocast.h"
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/no_pack_linear.h"
#include "penstock/runtime/partition_by_time.h"
#include "penstock/runtime/partition_network.h"
#include "penstock/runtime/tune.h"
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

void decide_by_measuring(const Undecided& undecided, PipelineOptions& options) {
  const bool wants_kernels = options.kernels == Kernels::tuned && options.kernel_selection.empty();
  if (wants_kernels || options.partition == "time") {
    const Graph graph = trace_graph(undecided.network, options.inputs, trace_sample(options));
    const Tensors sample = micro_batch_of(options, undecided.world.replicas());
    const Agreement agreement{undecided.world, undecided.pipeline, graph, sample};
    if (wants_kernels)
      options.kernel_selection =
          agree_on_kernels(agreement, {.compute_type = options.precision == Precision::fp32
                                                           ? torch::kFloat32
                                                           : autocast_for(options.precision, c10::kCPU).type,
                                       .fuses_weights = has_fused_w(undecided.instructions),
                                       .micro_batches = options.micro_batches})
              .to_text();
    if (options.partition == "time" && !is_annotated(graph))
      options.partition =
          agree_on_fastest_partition(agreement, kernels_of(options), undecided.instructions.rank_of_stage);
  }
  keep_shapes_alone(options.sample);
}

std::shared_ptr<const KernelSelection> kernels_of(const PipelineOptions& options) {
  const KernelSelection selection = options.kernels == Kernels::tuned
                                        ? KernelSelection::from_text(options.kernel_selection)
                                        : KernelSelection::fixed();
  require<ConfigError>(has_no_pack_linear() || !selection.has(LinearKernel::streamed),
                       "the chosen kernels are in part those of BLIS ('streamed'), and this Penstock was built "
                       "without: build it where libblis-serial-dev is installed, or give kernels chosen without it");
  return std::make_shared<const KernelSelection>(selection);
}

}  // namespace penstock
