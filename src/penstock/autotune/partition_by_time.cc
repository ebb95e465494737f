#include "penstock/autotune/partition_by_time.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include <torch/autograd.h>
#include <torch/nn/module.h>

#include "penstock/autotune/sample_walk.h"
#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/layers/split_layers.h"
#include "penstock/plan/partition_search.h"

namespace penstock {
namespace {

constexpr int timed_runs = 3;

/// Copies, so that a layer that changes its input in place does not affect others; they require gradients as values in
/// a pipeline do.
Tensors copies_of(const Tensors& values, bool with_gradient) {
  Tensors copies;
  for (const torch::Tensor& value : values) {
    torch::Tensor copy = value.defined() ? value.detach().clone() : value;
    if (with_gradient && copy.defined() && copy.is_floating_point()) {
      copy.requires_grad_(true);
      copy = copy.view_as(copy);  // a layer may change it in place, which autograd forbids for a leaf
    }
    copies.push_back(copy);
  }
  return copies;
}

/// One node with gradient buffers, executed as in a stage.
class TimedNode {
 public:
  TimedNode(const SampleCall& call, const std::shared_ptr<const KernelSelection>& kernels) : call_(call) {
    if (!call.layer) return;
    for (auto& item : call.layer->module->named_parameters())
      gradients_.add_use({say(call.node.layer_path, ".", item.key()), item.value(), {}});
    split_ = split_layer({call.node.name, *call.layer, kernels}, gradients_);
  }

  /// Forward and backward.
  Tensors run(const Tensors& inputs) {
    gradients_.begin_step();
    const auto saved = c10::make_intrusive<SavedForWeights>();
    saved->weights_now = true;
    const Tensors outputs = split_        ? Tensors{split_->forward(inputs.front(), saved)}
                            : call_.layer ? call_.layer->forward(inputs)
                                          : call_.node.function(inputs);
    Tensors roots, given, leaves = gradients_.leaves();
    for (const torch::Tensor& output : outputs)
      if (output.defined() && output.requires_grad()) {
        roots.push_back(output);
        given.push_back(torch::ones_like(output));
      }
    std::copy_if(inputs.begin(), inputs.end(), std::back_inserter(leaves),
                 [](const torch::Tensor& t) { return t.defined() && t.requires_grad(); });
    if (!roots.empty() && !leaves.empty())
      torch::autograd::grad(roots, leaves, given, std::nullopt, /*create_graph=*/false, /*allow_unused=*/true);
    return outputs;
  }

 private:
  const SampleCall& call_;
  Gradients gradients_;
  std::unique_ptr<SplitLayer> split_;
};

std::vector<double> measure(const Graph& graph, const Tensors& sample,
                            const std::shared_ptr<const KernelSelection>& kernels,
                            const std::function<void(const Node&)>& at) {
  const torch::AutoGradMode with_graph(true);
  std::vector<double> seconds;
  walk_sample(graph, sample, kernels->is_tuned() ? Kernels::tuned : Kernels::fixed, [&](const SampleCall& call) {
    at(call.node);
    TimedNode timed(call, kernels);
    Tensors outputs;
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run <= timed_runs; ++run) {
      const Tensors own = copies_of(call.inputs, !call.reads_sample());
      const std::int64_t begin = now_ns();
      outputs = timed.run(own);
      if (run > 0) best = std::min(best, s_since(begin));
    }
    seconds.push_back(best);
    return outputs;
  });
  return seconds;
}

}  // namespace

std::vector<double> measured_times(const Graph& graph, const Tensors& sample,
                                   const std::shared_ptr<const KernelSelection>& kernels) {
  return measure(graph, sample, kernels, [](const Node&) {});
}

std::string fastest_partition(const Graph& graph, const std::vector<double>& seconds,
                              const std::vector<Rank>& rank_of_stage) {
  std::vector<double> sums{0};  // of the first 0, 1, 2, ... layers
  for (double time : seconds) sums.push_back(sums.back() + time);
  const auto time_of = [&](const LayerRange& range) {
    return sums[static_cast<std::size_t>(range.end)] - sums[static_cast<std::size_t>(range.begin)];
  };
  PartitionProblem problem;
  problem.layers = static_cast<int>(seconds.size());
  problem.rank_of_stage = rank_of_stage;
  problem.cost = problem.least = [&](Rank, std::span<const LayerRange> stages) {
    return std::accumulate(stages.begin(), stages.end(), 0.0,
                           [&](double sum, const LayerRange& range) { return sum + time_of(range); });
  };
  problem.share = time_of;
  const std::optional<FoundPartition> best = cheapest_partition(problem);
  require<ScheduleError>(best.has_value(), "partition 'time': ", seconds.size(), " layers are too few for ",
                         rank_of_stage.size(), " stages: each needs one");
  std::string partition;
  for (std::size_t stage = 1; stage < best->stages.size(); ++stage)
    partition += (stage > 1 ? "," : "") + graph.nodes[static_cast<std::size_t>(best->stages[stage].begin)].name;
  return partition;
}

std::string agree_on_fastest_partition(const SampleAgreement& agreement,
                                       const std::shared_ptr<const KernelSelection>& kernels,
                                       const std::vector<Rank>& rank_of_stage) {
  return agreement.on(Topic::partition, [&](const RankContext& context) {
    return fastest_partition(agreement.graph,
                             measure(agreement.graph, agreement.sample, kernels,
                                     [&](const Node& node) { report_progress_of(context, "time " + node.name); }),
                             rank_of_stage);
  });
}

}  // namespace penstock
