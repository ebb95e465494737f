#include "penstock/autotune/measured_options.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

#include <torch/autograd.h>
#include <torch/nn/module.h>

#include "penstock/autotune/sample.h"
#include "penstock/autotune/tune.h"
#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/base/text.h"
#include "penstock/layers/split_layers.h"
#include "penstock/layers/thread_scopes.h"
#include "penstock/model/graph.h"
#include "penstock/pipeline/partition_network.h"
#include "penstock/pipeline/pipeline.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/pipeline/schedule_cache.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/partition_search.h"
#include "penstock/rank/batch.h"
#include "penstock/schedule/schedule.h"
#include "penstock/world/collectives.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

/// Instructions for the stages and ranks of `training` that hold one micro-batch at a time: F on all stages, then B on
/// all stages in reverse, or I and W if `training` has them.
Schedule one_at_a_time(const Schedule& training) {
  Schedule schedule{"one micro-batch at a time", training.micro_batches, training.rank_of_stage,
                    std::vector<Order>(training.orders.size())};
  const bool splits = training.has(Op::input_grad);
  const auto add = [&](Op op, int stage, MicroBatch i) {
    const StageId id(stage);
    schedule.orders[schedule.rank_of(id).index()].push_back(Instruction::compute(op, id, i));
  };
  for (MicroBatch i(0); i.value() < training.micro_batches; i = i.next()) {
    for (int stage = 0; stage < training.stage_count(); ++stage) add(Op::forward, stage, i);
    for (int stage = training.stage_count() - 1; stage >= 0; --stage) {
      add(splits ? Op::input_grad : Op::backward, stage, i);
      if (splits) add(Op::weight_grad, stage, i);
    }
  }
  return schedule;
}

constexpr int timed_runs = 3;
constexpr double enough_s = 0.02;  // of a layer's runs

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
  TimedNode(const SampleCall& call, const std::shared_ptr<const kernels::KernelSelection>& kernels,
            const layers::Autocast& autocast)
      : call_(call), autocast_(autocast) {
    if (!call.layer) return;
    for (auto& item : call.layer->module->named_parameters())
      if (item.value().requires_grad())
        gradients_.add_use({say(call.node.layer_path, ".", item.key()), item.value(), {}});
    split_ = layers::split_layer({call.node.name, *call.layer, kernels}, gradients_);
    gradients_.begin_step();  // every run is a micro-batch of one step
  }

  /// Forward and backward.
  Tensors run(const Tensors& inputs) {
    const auto saved = c10::make_intrusive<layers::SavedForWeights>();
    saved->weights_now = true;
    const Tensors outputs = forward(inputs, saved);
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
  Tensors forward(const Tensors& inputs, const layers::Saved& saved) const {
    const layers::AutocastGuard autocast(autocast_);
    if (split_) return {split_->forward(inputs.front(), saved)};
    return call_.layer ? call_.layer->forward(inputs) : call_.node.function(inputs);
  }

  const SampleCall& call_;
  const layers::Autocast autocast_;
  layers::Gradients gradients_;
  std::unique_ptr<layers::SplitLayer> split_;
};

Tensors micro_batch_of(const Tensors& batch, const PipelineOptions& options, int replicas) {
  const rank::BatchAxes axes = sample_axes(options).inputs;
  const std::int64_t parts = std::int64_t{options.micro_batches} * replicas;
  const bool is_there = std::all_of(batch.begin(), batch.end(),
                                    [](const torch::Tensor& input) { return input.defined() && input.numel() > 0; });
  const std::int64_t rows = is_there ? axes.samples(batch) : 0;
  return rows > 0 ? axes.rows(batch, {0, std::max<std::int64_t>(1, rows / parts)}) : batch;
}

bool is_annotated(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) { return node.stage.has_value(); });
}

/// Measures and partitions on world rank 0, and returns its partition on every rank. Collective.
std::string agree_on_fastest_partition(const SampleAgreement& agreement,
                                       const std::shared_ptr<const kernels::KernelSelection>& kernels,
                                       const layers::Autocast& autocast, const std::vector<Rank>& rank_of_stage) {
  return agreement.on(Topic::partition, [&](const RankContext& context) {
    const std::vector<double> seconds =
        measured_times(agreement.graph, agreement.sample, kernels, autocast,
                       [&](const Node& node) { report_progress_of(context, "time " + node.name); });
    return fastest_partition(agreement.graph, seconds, rank_of_stage);
  });
}

}  // namespace

bool needs_bytes(const PipelineOptions& options) {
  return options.memory_limit && is_in_bytes(*options.memory_limit) &&
         !(options.costs && !options.costs->activation_bytes.empty());
}

PipelineOptions without_bytes(PipelineOptions options) {
  if (options.memory_limit && is_in_bytes(*options.memory_limit)) options.memory_limit.reset();
  return options;
}

StageCosts measured_bytes(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                          const AutotuneOptions& how) {
  require<ConfigError>(
      how.sample.count() > 0 && (!loss.reads_target() || how.sample_targets.count() > 0), "a memory limit of ",
      options.memory_limit ? to_string(*options.memory_limit) : "bytes",
      " needs the bytes of activations, which training steps on AutotuneOptions::sample and "
      "sample_targets show: pass autotune() a batch with its targets, or StageCosts::activation_bytes");
  PipelineOptions measuring = without_bytes(options);
  measuring.costs.reset();
  const Schedule training = ScheduleCache({.options = measuring, .ranks = world.stages()}).training();
  measuring.memory_limit.reset();
  measuring.custom = one_at_a_time(training);
  measuring.schedule.clear();
  measuring.chunks = 0;
  measuring.weight_gradients = WeightGradients::stream;
  measuring.count_bytes = true;
  measuring.update_every = 1;
  Pipeline pipeline(world, network, loss, measuring);
  pipeline.optimize_with(optimizer_or_sgd({}));
  // The first step does not count (rank/held_bytes.h).
  for (int step = 0; step < 2; ++step) pipeline.train_step(how.sample, how.sample_targets).wait();

  StageCosts costs = options.costs.value_or(StageCosts::unit());
  costs.activation_bytes.clear();
  costs.weight_share = 0;
  for (const StageBytes& stage : Profiler(pipeline).activation_bytes()) {
    const auto most = static_cast<double>(std::max(stage.after_forward, stage.after_input_grad));
    costs.activation_bytes.push_back(most);
    if (most > 0) costs.weight_share = std::max(costs.weight_share, static_cast<double>(stage.after_input_grad) / most);
  }
  return costs;
}

std::vector<double> measured_times(const Graph& graph, const Tensors& sample,
                                   const std::shared_ptr<const kernels::KernelSelection>& kernels,
                                   const layers::Autocast& autocast, const std::function<void(const Node&)>& at) {
  const torch::AutoGradMode with_graph(true);
  std::vector<double> seconds;
  walk_sample(graph, sample, kernels->is_tuned() ? Kernels::tuned : Kernels::fixed, [&](const SampleCall& call) {
    at(call.node);
    TimedNode timed(call, kernels, autocast);
    Tensors outputs;
    double best = std::numeric_limits<double>::infinity();
    double spent = 0;
    for (int run = 0; run <= timed_runs && (run < 2 || spent < enough_s); ++run) {
      const Tensors own = copies_of(call.inputs, !call.reads_sample());
      const std::int64_t begin = now_ns();
      outputs = timed.run(own);
      const double own_s = s_since(begin);
      if (run > 0) best = std::min(best, own_s);
      spent += own_s;
    }
    seconds.push_back(best);
    return outputs;
  });
  return seconds;
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
  const int count = static_cast<int>(rank_of_stage.size());
  problem.begins = possible_begins(blocks_of(graph), count);
  if (const std::string remark = remark_on_blocks(blocks_of(graph), count); !remark.empty())
    warn("the partition by time cuts blocks: " + remark);
  problem.cost = problem.least = [&](Rank, std::span<const LayerRange> stages) {
    return std::accumulate(stages.begin(), stages.end(), 0.0,
                           [&](double sum, const LayerRange& range) { return sum + time_of(range); });
  };
  problem.share = time_of;
  const std::optional<FoundPartition> best = cheapest_partition(problem);
  require<ScheduleError>(best.has_value(), "partition 'time': ", seconds.size(), " layers are too few for ",
                         rank_of_stage.size(), " stages: each needs one");
  return listed(std::span(best->stages).subspan(1), ",",
                [&](const LayerRange& stage) { return graph.nodes[static_cast<std::size_t>(stage.begin)].name; });
}

MeasuredOptions measured_options(World& world, Cell& network, PipelineOptions options, const Tensors& batch) {
  double kernel_gain = 1;
  const bool wants_kernels = options.kernels == Kernels::tuned && options.kernel_selection.empty();
  require_kernels(options.kernels);
  if (wants_kernels || options.partition == "time") {
    const Schedule training = ScheduleCache({.options = without_bytes(options), .ranks = world.stages()}).training();
    const Graph graph = trace_graph(network, options.inputs, trace_sample(options));
    const Tensors sample = micro_batch_of(batch, options, world.replicas());
    const SampleAgreement agreement{world, ranks_of(world).next_pipeline(), graph, sample};
    const layers::Autocast autocast = layers::autocast_for(options.precision, c10::kCPU);
    if (wants_kernels) {
      const TunedKernels tuned =
          agree_on_kernels(agreement, {.compute_type = autocast.enabled ? autocast.type : torch::kFloat32,
                                       .weight_gradients = weight_gradients_of(training),
                                       .micro_batches = options.micro_batches});
      options.kernel_selection = tuned.selection.to_text();
      kernel_gain = tuned.gain;
    }
    if (options.partition == "time" && !is_annotated(graph))
      options.partition =
          agree_on_fastest_partition(agreement, kernels::kernels_from(options.kernels, options.kernel_selection),
                                     autocast, training.rank_of_stage);
  }
  return {std::move(options), kernel_gain};
}

}  // namespace penstock
