#include "penstock/autotune/profile.h"

#include <algorithm>

#include <torch/optim/sgd.h>

#include "penstock/autotune/measured_options.h"
#include "penstock/base/error.h"
#include "penstock/model/trace_graph.h"
#include "penstock/plan/fit_time_variation.h"
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/layer_times.h"
#include "penstock/runtime/partition_network.h"
#include "penstock/runtime/time_layers.h"
#include "penstock/schedule/lower.h"

namespace penstock {
namespace {

// In the order of profiled_steps.
constexpr std::size_t fused_run = 0, split_run = 1, whole_run = 2, chunked_run = 3, sequential_run = 4;
constexpr std::size_t most_passes = 9;

using Runs = std::vector<std::optional<TimedRun>>;  // one per profiled_steps

Runs merged(const std::vector<Runs>& passes) {
  Runs runs = passes.front();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (!runs[i]) continue;
    std::vector<TimedSteps> steps;
    for (const Runs& pass : passes) steps.push_back(pass[i]->steps);
    runs[i]->steps = median_of(steps);
  }
  return runs;
}

/// The sum of F and B (or I) over all layers.
double work(const LayerCosts& costs) {
  double sum = 0;
  for (const LayerCost& layer : costs.layers) sum += layer.forward + layer.input_grad;
  return sum;
}

void require_choice(const World& world, const Loss& loss, const PipelineOptions& options) {
  require<ConfigError>(loss.looks_at_target() ? options.sample_targets.defined()
                                              : options.sample_targets.count() > 0 || !options.sample.empty(),
                       "schedule 'auto' times training steps on PipelineOptions::sample and sample_targets: give it a "
                       "batch with its targets");
  require<ConfigError>(world.replicas() == 1, "schedule 'auto' times one pipeline, but there are ", world.replicas(),
                       " replicas: plan with one, and train with --plan");
  require<ConfigError>(
      !options.custom && options.chunks == 0 && !options.memory_limit,
      "schedule 'auto' chooses the instructions and the chunks by itself, without a memory limit: leave "
      "those out, or name a schedule");
}

/// The number of layers. Throws ConfigError where one is annotated with a stage.
int free_layers(Cell& network, const PipelineOptions& options) {
  const Graph graph = trace_graph(network, options.inputs, trace_sample(options));
  for (const Node& node : graph.nodes)
    require<ConfigError>(!node.stage, "schedule 'auto' chooses the partition too, but '", node.name,
                         "' is annotated with a stage: leave the annotations out, or name a schedule");
  return static_cast<int>(graph.nodes.size());
}

std::int64_t sample_size(const PipelineOptions& options) {
  const BatchAxesOf axes{{"sample", options.input_layout}, {"sample_targets", options.target_layout}, {}};
  return axes.samples(options.sample, options.sample_targets);
}

/// Where micro_batches is 0: p, 2p, 4p and 8p, as far as the samples suffice.
std::vector<int> micro_batches_to_try(const PipelineOptions& options, int stages) {
  if (options.micro_batches > 0) return {options.micro_batches};
  const std::int64_t samples = sample_size(options);
  std::vector<int> counts;
  for (int count = stages; count <= 8 * stages && count <= samples; count *= 2) counts.push_back(count);
  if (counts.empty()) counts.push_back(1);
  return counts;
}

}  // namespace

LayerCosts profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                   const ProfileOptions& how) {
  require_choice(world, loss, options);
  const ProfiledNetwork size{world.stages(), free_layers(network, options)};
  PipelineOptions base = options;
  base.partition = world.stages() > 1 ? "time" : "uniform";
  const auto pass = [&] {
    Runs runs;
    for (const ProfiledSteps& what : profiled_steps) {
      runs.emplace_back();
      const std::optional<PipelineOptions> candidate = profiled_options(what, base, size);
      if (!candidate || (!how.slowdown_under_load && &what == &profiled_steps[sequential_run])) continue;
      Pipeline pipeline(world, network, loss, measured_options(world, network, *candidate));
      if (how.optimizer)
        pipeline.optimize_with(how.optimizer);
      else
        pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-6); });
      // All pipelines use the kernels and the partition for one stage per rank that were measured for the first.
      base.kernel_selection = pipeline.options().kernel_selection;
      if (!what.in_chunks) base.partition = pipeline.options().partition;
      runs.back() = timed_run(pipeline, {options.sample, options.sample_targets, how.steps});
    }
    return runs;
  };
  std::vector<Runs> passes{pass()};
  double pass_ms = 0;  // on every process the same
  for (const auto& run : passes.front())
    if (run) pass_ms += run->steps.step * (how.steps + untimed_steps);
  for (double left = how.passes_ms - pass_ms; left >= pass_ms && passes.size() < most_passes; left -= pass_ms)
    passes.push_back(pass());
  LayerCosts costs = costs_of(merged(passes), sample_size(options));
  costs.kernels = base.kernel_selection;
  return costs;
}

std::optional<PipelineOptions> profiled_options(const ProfiledSteps& what, const PipelineOptions& base,
                                                const ProfiledNetwork& network) {
  PipelineOptions options = base;
  options.schedule = what.schedule;
  options.weight_gradients = what.weight_gradients;
  if (!what.in_chunks) return options;
  options.chunks = std::min(most_chunks, network.layers / network.stages);
  options.partition = "uniform";
  if (options.chunks < 2) return std::nullopt;
  return options;
}

TimedRun timed_run(Pipeline& pipeline, const TimedBatch& batch) {
  TimedRun run;
  run.plan.schedule = strip(pipeline.schedule());
  run.plan.stages = layers_by_stage(pipeline.stages());
  run.steps = pipeline.time_layers(batch.inputs, batch.targets, batch.steps);
  return run;
}

LayerCosts costs_of(std::span<const std::optional<TimedRun>> runs, std::int64_t samples) {
  require<ConfigError>(
      runs.size() == std::size(profiled_steps) && runs[fused_run] && runs[split_run] && runs[whole_run],
      "costs come from ", std::size(profiled_steps),
      " schedules: give at least the runs of the first three, and none for each of the others that is missing");
  const LayerCosts &fused = runs[fused_run]->steps.costs, &split = runs[split_run]->steps.costs,
                   &whole = runs[whole_run]->steps.costs;
  LayerCosts costs = fused;
  const int micro_batches = runs[fused_run]->plan.schedule.micro_batches;
  costs.samples = samples;
  costs.micro_batch_size = (samples + micro_batches - 1) / micro_batches;
  costs.micro_batches = {micro_batches};
  costs.link.latency = std::max({fused.link.latency, split.link.latency, whole.link.latency});
  costs.instruction_overhead = (fused.instruction_overhead + split.instruction_overhead) / 2;
  // Times are those of the mean micro-batch; LayerCosts needs those of micro_batch_size samples.
  const double scale = static_cast<double>(costs.micro_batch_size) * micro_batches / static_cast<double>(samples);
  for (std::size_t n = 0; n < costs.layers.size(); ++n) {
    const LayerCost &f = fused.layers[n], &s = split.layers[n], &w = whole.layers[n];
    LayerCost& layer = costs.layers[n];
    // LayerCosts has one time for F in all runs, and one for I in two. A run's difference to them goes to its W or B: a
    // W between two F's evicts their data from the cache, and a fused one does not.
    const double forward = (f.forward + s.forward + w.forward) / 3, input_grad = (f.input_grad + s.input_grad) / 2;
    const auto with_rest = [&](double own, double rest) { return scale * std::max(0.0, own + rest); };
    layer.forward = scale * forward;
    layer.input_grad = scale * input_grad;
    layer.weight_grad = with_rest(s.weight_grad, s.forward - forward + s.input_grad - input_grad);
    layer.weight_grad_fused = with_rest(f.weight_grad, f.forward - forward + f.input_grad - input_grad);
    layer.backward = with_rest(w.input_grad, w.forward - forward);
    if (runs[chunked_run]) {
      layer.forward_cached = scale * runs[chunked_run]->steps.costs.layers[n].forward;
      layer.input_grad_cached = scale * runs[chunked_run]->steps.costs.layers[n].input_grad;
    }
  }
  const double together = work(whole), alone = runs[sequential_run] ? work(runs[sequential_run]->steps.costs) : 0;
  if (costs.ranks > 1 && together > 0 && alone > 0) costs.slowdown_under_load = together / alone;
  std::vector<MeasuredStep> steps;  // of the runs that the costs come from
  for (const std::size_t run : {fused_run, split_run, whole_run})
    steps.push_back({runs[run]->plan, runs[run]->steps.step});
  costs.time_variation = fitted_time_variation(costs, steps);
  return costs;
}

AutoChoice choose_by_profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                             ProfileOptions how) {
  how.slowdown_under_load = false;
  require<ConfigError>(options.partition == "parameters" || options.partition == "time",
                       "schedule 'auto' chooses the partition too, but it is given as '", options.partition,
                       "': leave it out, or name a schedule");
  const PlanConstraints constraints{.weight_gradients = options.weight_gradients};
  std::optional<AutoChoice> best;
  LayerCosts costs;
  const std::vector<int> counts = micro_batches_to_try(options, world.stages());
  how.passes_ms /= static_cast<double>(counts.size());
  for (const int count : counts) {
    PipelineOptions counted = options;
    counted.micro_batches = count;
    LayerCosts measured = profile(world, network, loss, counted, how);
    AutoChoice choice{counted, make_plan(measured, constraints)};
    if (best && best->planned.plan.prediction.makespan <= choice.planned.plan.prediction.makespan) continue;
    best = std::move(choice);
    costs = std::move(measured);
  }
  AutoChoice choice = *std::move(best);
  PipelineOptions& decided = choice.options;
  const Plan& plan = choice.planned.plan;
  decided.schedule.clear();
  decided.custom = plan.schedule;
  decided.weight_gradients = WeightGradients::stream;  // the instructions are fused already where they should be
  decided.kernel_selection = plan.kernels;
  decided.layer_costs = write_layer_costs(costs);
  keep_shapes_alone(decided.sample);
  decided.sample_targets = {};
  decided.partition = partition_of(plan);
  return choice;
}

}  // namespace penstock
