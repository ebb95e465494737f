#include "penstock/runtime/decide.h"

#include <algorithm>

#include "penstock/runtime/autocast.h"
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/cut_network.h"
#include "penstock/runtime/streamed_linear.h"
#include "penstock/runtime/time_cut.h"
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
  const bool wants_kernels = options.kernels == Kernels::tuned && options.kernel_book.empty();
  if (wants_kernels || options.cut == "time") {
    const Graph graph = trace_graph(undecided.network, options.inputs, trace_sample(options));
    const Tensors sample = micro_batch_of(options, undecided.world.replicas());
    const Agreement agreement{undecided.world, undecided.pipeline, graph, sample};
    if (wants_kernels)
      options.kernel_book =
          agree_on_kernels(agreement, {.compute_type = options.precision == Precision::fp32
                                                           ? torch::kFloat32
                                                           : autocast_for(options.precision, c10::kCPU).type,
                                       .fuses_weights = has_fused_w(undecided.words),
                                       .micro_batches = options.micro_batches})
              .to_text();
    if (options.cut == "time" && !is_annotated(graph))
      options.cut = agree_on_fastest_cut(agreement, kernels_of(options), undecided.words.rank_of_stage);
  }
  keep_shapes_alone(options.sample);
}

std::shared_ptr<const KernelBook> kernels_of(const PipelineOptions& options) {
  const KernelBook book =
      options.kernels == Kernels::tuned ? KernelBook::from_text(options.kernel_book) : KernelBook::fixed();
  require<ConfigError>(has_streamed_linear() || !book.has(LinearKernel::streamed),
                       "the chosen kernels are in part those of BLIS ('streamed'), and this Penstock was built "
                       "without: build it where libblis-serial-dev is installed, or give kernels chosen without it");
  return std::make_shared<const KernelBook>(book);
}

}  // namespace penstock
