#include "penstock/runtime/profile.h"

#include <algorithm>

#include <torch/optim/sgd.h>

#include "penstock/base/error.h"
#include "penstock/plan/fit_spread.h"
#include "penstock/runtime/layer_times.h"
#include "penstock/runtime/time_layers.h"
#include "penstock/schedule/lower.h"

namespace penstock {
namespace {

constexpr std::size_t contention_run = 3;  // of profiled_steps: the last

void require_choice(const World& world, const PipelineOptions& options) {
  require<ConfigError>(options.sample_targets.defined(),
                       "schedule 'auto' times training steps on PipelineOptions::sample and sample_targets: give it a "
                       "batch with its targets");
  require<ConfigError>(world.replicas() == 1, "schedule 'auto' times one pipeline, but there are ", world.replicas(),
                       " replicas: plan with one, and train with --plan");
  require<ConfigError>(!options.custom && options.chunks == 0 && !options.memory_limit,
                       "schedule 'auto' chooses the words and the chunks by itself, without a memory limit: leave "
                       "those out, or name a schedule");
}

void require_no_annotations(Cell& network, int inputs) {
  for (const Node& node : trace_graph(network, inputs).nodes)
    require<ConfigError>(!node.stage, "schedule 'auto' chooses the cut too, but '", node.name,
                         "' is annotated with a stage: leave the annotations out, or name a schedule");
}

/// p, 2p, 4p and 8p, as far as there are samples, where the options leave m open.
std::vector<int> micro_batches_to_try(const PipelineOptions& options, int stages) {
  if (options.micro_batches > 0) return {options.micro_batches};
  require<ConfigError>(options.sample_targets.defined() && options.sample_targets.dim() >= 1,
                       "the number of micro-batches is to be chosen, but PipelineOptions::sample_targets has no "
                       "samples");
  std::vector<int> counts;
  for (int count = stages; count <= 8 * stages && count <= options.sample_targets.size(0); count *= 2)
    counts.push_back(count);
  if (counts.empty()) counts.push_back(1);
  return counts;
}

}  // namespace

LayerCosts profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                   const ProfileOptions& how) {
  require_choice(world, options);
  require_no_annotations(network, options.inputs);
  PipelineOptions trial = options;
  trial.cut = world.stages() > 1 ? "time" : "uniform";
  std::vector<TimedRun> runs;
  for (const ProfiledSteps& what : profiled_steps) {
    if (!how.contention && &what == &profiled_steps[contention_run]) continue;
    trial.schedule = what.schedule;
    trial.weight_gradients = what.weight_gradients;
    Pipeline pipeline(world, network, loss, trial);
    if (how.optimizer)
      pipeline.optimize_with(how.optimizer);
    else
      pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-6); });
    // What the first of them measured holds for all: the same kernels, and one stage per rank.
    trial.kernel_book = pipeline.options().kernel_book;
    trial.cut = pipeline.options().cut;
    runs.push_back(timed_run(pipeline, {options.sample, options.sample_targets, how.steps}));
  }
  LayerCosts costs = costs_of(runs, options.sample_targets.size(0));
  costs.kernels = trial.kernel_book;
  return costs;
}

TimedRun timed_run(Pipeline& pipeline, const TimedBatch& batch) {
  TimedRun run;
  run.plan.schedule = strip(pipeline.schedule());
  run.plan.stages = layers_by_stage(pipeline.stages());
  run.steps = pipeline.time_layers(batch.inputs, batch.targets, batch.steps);
  return run;
}

LayerCosts costs_of(std::span<const TimedRun> runs, std::int64_t samples) {
  require<ConfigError>(runs.size() == std::size(profiled_steps) || runs.size() == contention_run, runs.size(),
                       " pipelines were timed: give one for each of ", std::size(profiled_steps),
                       " schedules, or leave the last one out");
  const TimedSteps &fused = runs[0].steps, &split = runs[1].steps, &whole = runs[2].steps;
  const int micro_batches = runs[0].plan.schedule.micro_batches;
  LayerCosts costs;
  costs.time_unit = "ms";
  costs.ranks = runs[0].plan.schedule.rank_count();
  costs.samples = samples;
  costs.micro_batch_size = (samples + micro_batches - 1) / micro_batches;
  costs.micro_batches = {micro_batches};
  costs.link.latency = std::max({fused.message, split.message, whole.message});
  costs.cache_bytes = static_cast<double>(fused.cache_bytes);
  costs.word_overhead = (fused.word_overhead + split.word_overhead) / 2;
  // Figures are those of the mean micro-batch; the form asks for those of micro_batch_size samples.
  const double scale = static_cast<double>(costs.micro_batch_size) * micro_batches / static_cast<double>(samples);
  for (std::size_t n = 0; n < fused.layers.size(); ++n) {
    const LayerTimes &f = fused.layers[n], &s = split.layers[n], &w = whole.layers[n];
    LayerCost layer;
    layer.name = f.name;
    // One figure stands for F in all runs, and one for I in two. What a run's own were more or less, its W or B gets: a
    // W between two F's costs these their caches, and a fused one does not.
    const double forward = (f.forward + s.forward + w.forward) / 3, input_grad = (f.backward + s.backward) / 2;
    const auto with_rest = [&](double own, double rest) { return scale * std::max(0.0, own + rest); };
    layer.forward = scale * forward;
    layer.input_grad = scale * input_grad;
    layer.weight_grad = with_rest(s.weight_grad, s.forward - forward + s.backward - input_grad);
    layer.weight_grad_fused = with_rest(f.weight_grad, f.forward - forward + f.backward - input_grad);
    layer.backward = with_rest(w.backward, w.forward - forward);
    layer.update = fused.update_per_byte * static_cast<double>(f.parameter_bytes);
    layer.parameter_bytes = static_cast<double>(2 * f.parameter_bytes);
    layer.activation_bytes = layer.boundary_bytes = static_cast<double>(f.output_bytes);
    costs.layers.push_back(std::move(layer));
  }
  const auto work = [](const TimedSteps& steps) {
    double sum = 0;
    for (const LayerTimes& layer : steps.layers) sum += layer.forward + layer.backward;
    return sum;
  };
  if (costs.ranks > 1 && runs.size() > contention_run && work(whole) > 0 && work(runs[contention_run].steps) > 0)
    costs.contention = work(whole) / work(runs[contention_run].steps);
  std::vector<MeasuredStep> steps;  // but for the last one: there no rank waits for the slower of two
  for (const TimedRun& run : runs.first(contention_run)) steps.push_back({run.plan, run.steps.step});
  costs.spread = fitted_spread(costs, steps);
  return costs;
}

AutoChoice choose_by_profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                             ProfileOptions how) {
  how.contention = false;
  require<ConfigError>(options.cut == "parameters" || options.cut == "time",
                       "schedule 'auto' chooses the cut too, but it is given as '", options.cut,
                       "': leave it out, or name a schedule");
  PlanWishes wishes;
  if (options.weight_gradients == WeightGradients::stream) wishes.weight_gradients = WeightMode::stream;
  if (options.weight_gradients == WeightGradients::fused) wishes.weight_gradients = WeightMode::fused;
  std::optional<AutoChoice> best;
  LayerCosts costs;
  for (const int count : micro_batches_to_try(options, world.stages())) {
    PipelineOptions counted = options;
    counted.micro_batches = count;
    LayerCosts measured = profile(world, network, loss, counted, how);
    AutoChoice choice{counted, make_plan(measured, wishes)};
    if (best && best->planned.plan.prediction.makespan <= choice.planned.plan.prediction.makespan) continue;
    best = std::move(choice);
    costs = std::move(measured);
  }
  AutoChoice choice = *std::move(best);
  PipelineOptions& decided = choice.options;
  const Plan& plan = choice.planned.plan;
  decided.schedule.clear();
  decided.custom = plan.schedule;
  decided.weight_gradients = WeightGradients::stream;  // the words are fused already where they should be
  decided.kernel_book = plan.kernels;
  decided.layer_costs = write_layer_costs(costs);
  decided.sample.clear();
  decided.sample_targets = torch::Tensor();
  decided.cut = cut_of(plan);
  return choice;
}

}  // namespace penstock
