#include "penstock/runtime/pipeline.h"

#include <cmath>
#include <exception>
#include <optional>
#include <utility>

#include <torch/nn/module.h>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/layers/autocast.h"
#include "penstock/model/loss_checks.h"
#include "penstock/runtime/fingerprint.h"
#include "penstock/runtime/inferences.h"
#include "penstock/runtime/job_factory.h"
#include "penstock/runtime/load_state.h"
#include "penstock/runtime/local_runners.h"
#include "penstock/runtime/partition_network.h"
#include "penstock/runtime/peaks.h"
#include "penstock/runtime/recovered_state.h"
#include "penstock/runtime/step_parts.h"
#include "penstock/runtime/step_queue.h"
#include "penstock/runtime/time_layers.h"
#include "penstock/schedule/schedule.h"
#include "penstock/world/agreement.h"
#include "penstock/world/cache_share.h"
#include "penstock/world/collectives.h"
#include "penstock/world/device.h"
#include "penstock/world/gather.h"
#include "penstock/world/preflight.h"

namespace penstock {
namespace {

/// `given` with the choices that the pipeline itself makes.
PipelineOptions decided_options(PipelineOptions options, const std::string& schedule) {
  keep_shapes_alone(options.sample);
  options.schedule = schedule;
  options.device = resolved_device(options.device);
  return options;
}

void require_options(const PipelineOptions& options, int inputs) {
  require_layouts(options, inputs);
  const double clip_norm = options.clip_norm.value_or(1);
  require<ConfigError>(clip_norm > 0, "gradients clipped to a norm of ", clip_norm, ": give a positive number");
  require_loss_scaling(options.loss_scaling);
  require_precision(options.precision, device_of(options.device, 0).type());
  require<ConfigError>(options.compare_batches >= 0, "batches are compared in every ", options.compare_batches,
                       "th step: give a positive number, or 0 for never");
}

}  // namespace

/// The parts of a pipeline.
class Pipeline::Impl {
 public:
  Impl(World& in_world, Cell& network, Loss given_loss, const PipelineOptions& given);

  World& world() const { return runners->world(); }
  const StagedGraph& staged() const { return runners->staged(); }
  Fingerprint fingerprint() const {
    return fingerprint_of(options, {world(), staged(), schedules.training(), loss, axes});
  }
  /// Compares the ranks' settings, and lowers the schedules for the parameters that train. Collective.
  void lower();
  void set_trainable(const std::string& name, bool trains);

  /// Waits for all submitted jobs; throws the error of a failed one.
  void drain();
  /// drain(), then runs `work` on every local rank's thread.
  void on_each_rank(const LocalRunners::Work& work) {
    drain();
    runners->run(work);
  }
  /// Throws ConfigError while the average replaces the parameters.
  void require_own_values() const;

  StepResult forward_backward(const BatchTensors& inputs, const BatchTensors& targets, const StepOptions& how);
  void later_part(StepPart part, double divisor);

  PipelineOptions options;
  Loss loss;
  BatchAxesOf axes;
  std::uint32_t number;  // of the pipeline in its world
  ScheduleCache schedules;
  std::shared_ptr<LocalRunners> runners;
  std::shared_ptr<const CompiledSchedule> full_schedule;  // for all m micro-batches
  JobFactory jobs;
  StepQueue steps;
  StepParts parts;
  std::optional<Inferences> inferences;
  bool has_optimizer = false;
  bool keeps_average = false;
  bool uses_average = false;
  int exceptions = std::uncaught_exceptions();  // may be above 0 where a destructor makes the pipeline
};

Pipeline::Impl::Impl(World& in_world, Cell& network, Loss given_loss, const PipelineOptions& given)
    : options(given),
      loss(complete(std::move(given_loss))),
      axes{{"inputs", given.input_layout}, {"targets", given.target_layout}, {"outputs", given.output_layout}},
      number(in_world.next_pipeline()),
      schedules({.options = given, .ranks = in_world.stages()}),
      runners(std::make_shared<LocalRunners>(in_world, number,
                                             partition_network(network, options, schedules.training().stage_count()))),
      jobs({options, loss, axes, schedules, *runners}),
      steps(runners) {
  options = decided_options(std::move(options), schedules.source());
  require_options(options, staged().graph.inputs);
  if (world().is_main())
    for (const std::string& warning : staged().warnings) warn(warning);
  const std::shared_ptr<const KernelSelection> kernels = kernels_from(options.kernels, options.kernel_selection);
  runners->make([&](const RankContext& context) {
    const int local_rank = context.is_alone ? context.rank.value() : local_rank_of(context.rank.value());
    return std::make_unique<RankRunner>(
        staged(), schedules.training(),
        RankSetting{.pipeline = number,
                    .context = context,
                    .loss = loss,
                    .reductions = {options.reduction, options.replica_reduction, options.reported_loss},
                    .clip_norm = options.clip_norm,
                    .boundary_shape = options.boundary_shape,
                    .seed = options.seed,
                    .precision = options.precision,
                    .loss_scaling = options.loss_scaling,
                    .compare_batches = options.compare_batches,
                    .device = device_of(options.device, local_rank),
                    .kernels = kernels,
                    .count_bytes = options.count_bytes,
                    .axes = axes,
                    .keep_last_step = options.keep_last_step});
  });
  lower();
  const Rank last = full_schedule->schedule.rank_of(StageId(staged().stage_count() - 1));
  inferences.emplace(runners, Inferences::Setting{staged().graph.inputs, options.micro_batches, last, axes});
}

void Pipeline::Impl::lower() {
  std::vector<bool> node_trains;
  runners->run([&](RankRunner& runner) {
    auto trains =
        compare_ranks(runner.context(), {number, fingerprint(), runner.trainable_nodes(), staged().graph.nodes.size()});
    if (runner.context().collects) node_trains = std::move(trains);
  });
  schedules.set_partition(links_of(staged(), node_trains), world().replicas() > 1 || has_ties(staged(), node_trains));
  full_schedule = schedules.for_training(options.micro_batches);
}

void Pipeline::Impl::set_trainable(const std::string& name, bool trains) {
  require<ConfigError>(!parts.has_gradients(), trains ? "unfreeze" : "freeze", " before the last step's ",
                       "update: call step() first");
  require_parameters(staged(), name, options.seed);
  on_each_rank([&](RankRunner& runner) { runner.set_trainable(name, trains); });
  lower();
}

void Pipeline::Impl::drain() {
  world().require_own_process();
  inferences->finish();
  steps.finish();
}

void Pipeline::Impl::require_own_values() const {
  require<ConfigError>(!uses_average, "training while the average replaces the weights: call use_average(false) first");
}

StepResult Pipeline::Impl::forward_backward(const BatchTensors& inputs, const BatchTensors& targets,
                                            const StepOptions& how) {
  parts.require_forward_backward();
  const auto job = jobs.training(inputs, targets, StepPart::forward_backward);
  job->keeps_outputs = how.keep_outputs;
  parts.begin(job, jobs.weight_of(*job));
  return steps.start(job);
}

void Pipeline::Impl::later_part(StepPart part, double divisor) {
  require<ConfigError>(has_optimizer || part != StepPart::update,
                       "step before optimize_with: give the pipeline an optimiser first");
  parts.require_later(part);
  require<ConfigError>(std::isfinite(divisor) && divisor != 0, "gradients divided by ", divisor,
                       ": give a finite scale that is not 0");
  if (part == StepPart::update && parts.needs_reduction()) later_part(StepPart::reduce, 1);
  const auto begun = parts.begun();
  const auto job = jobs.later_part(*begun, part, divisor);
  parts.end(part);
  const StepResult result = steps.start(job);
  if (part != StepPart::update) return;
  // The result of the step is that of forward_backward.
  if (options.clip_norm) begun->state->set_gradient_norm(result.gradient_norm());
  if (options.precision == Precision::fp16 && result.update_skipped()) begun->state->set_update_skipped();
}

Pipeline::Pipeline(World& world, Cell& network, Loss loss, const PipelineOptions& options)
    : impl_(std::make_unique<Impl>(world, network, std::move(loss), options)) {}

Pipeline::Pipeline(World& world, const torch::nn::Sequential& network, Loss loss, const PipelineOptions& options)
    : Pipeline(world, *from_sequential(network), std::move(loss), options) {}

// Reports to the other processes that an exception ended the pipeline here, or logs unreported failures.
Pipeline::~Pipeline() {
  const bool by_exception = std::uncaught_exceptions() > impl_->exceptions;
  if (by_exception) impl_->world().leave_pipeline(impl_->number);
  impl_->inferences->settle();
  impl_->steps.settle();
  if (!by_exception) impl_->world().failures()->log_unreported("a pipeline ends with");
}

// Training.

void Pipeline::set_optimizer(const OptimizerFactory& factory) {
  impl_->on_each_rank([&](RankRunner& runner) { runner.updater().make_optimizers(factory); });
  impl_->has_optimizer = true;
}

void Pipeline::optimize_with(const ParameterGroups& groups) {
  groups.require_all_used(all_parameters(stages(), options().seed));
  set_optimizer(groups.factory());
}

StepResult Pipeline::train_step(const BatchTensors& inputs, const BatchTensors& targets, const StepOptions& options) {
  impl_->require_own_values();
  require<ConfigError>(impl_->has_optimizer, "train_step before optimize_with: give the pipeline an optimiser first");
  const bool accumulates = impl_->parts.accumulates();
  require<ConfigError>(accumulates || !impl_->parts.has_gradients(),
                       "a step is begun before the last one's update: call step() first");
  if (accumulates) {
    const StepResult result = impl_->forward_backward(inputs, targets, options);
    if (impl_->parts.is_update_due()) impl_->later_part(StepPart::update, 1);
    return result;
  }
  const auto job = impl_->jobs.training(inputs, targets, StepPart::whole);
  job->keeps_outputs = options.keep_outputs;
  return impl_->steps.start(job);
}

StepResult Pipeline::forward_backward(const BatchTensors& inputs, const BatchTensors& targets) {
  impl_->require_own_values();
  return impl_->forward_backward(inputs, targets, {});
}
void Pipeline::reduce_gradients(double scale) { impl_->later_part(StepPart::reduce, scale); }
void Pipeline::step() { impl_->later_part(StepPart::update, 1); }
void Pipeline::update_every(int calls) { impl_->parts.update_every(calls); }

void Pipeline::add_gradient_hook(const GradientHook& hook) {
  require<ConfigError>(hook != nullptr, "a gradient hook is empty: give a function of a name and a gradient");
  impl_->on_each_rank([&](RankRunner& runner) { runner.updater().add_hook(hook); });
}

std::map<std::string, torch::Tensor> Pipeline::local_gradients() {
  require<ConfigError>(impl_->parts.has_gradients(), "there are no gradients: call forward_backward first");
  impl_->drain();
  std::map<WorldRank, std::vector<std::pair<std::string, torch::Tensor>>> by_rank;
  for (const auto& runner : impl_->runners->all()) by_rank[runner->context().rank] = {};
  impl_->runners->run([&](RankRunner& runner) { by_rank.at(runner.context().rank) = runner.updater().gradients(); });
  std::map<std::string, torch::Tensor> all;
  for (const auto& [rank, gradients] : by_rank) all.insert(gradients.begin(), gradients.end());
  return all;
}

void Pipeline::set_learning_rate(double rate) { impl_->jobs.set_learning_rate(rate); }
void Pipeline::freeze(const std::string& name) { impl_->set_trainable(name, false); }
void Pipeline::unfreeze(const std::string& name) { impl_->set_trainable(name, true); }

// Evaluation and inference.

StepResult Pipeline::evaluate(const BatchTensors& inputs, const BatchTensors& targets,
                              const std::vector<Metric>& metrics, const StepOptions& options) {
  const auto job = impl_->jobs.evaluation(inputs, targets, metrics);
  job->keeps_outputs = options.keep_outputs;
  return impl_->steps.start(job);
}

InferResult Pipeline::infer(const BatchTensors& inputs, const InferOptions& options) {
  const auto job = impl_->jobs.inference(*impl_->inferences, inputs.list(), options);
  impl_->steps.prepare(*job);
  impl_->inferences->add(*job);
  impl_->steps.post(job);
  return InferResult(job->state, job->inference->state);
}
InferenceSession Pipeline::open_session() { return InferenceSession(impl_->inferences->open_session()); }

// What the pipeline was made of.

RowRange Pipeline::share_rows(std::int64_t samples) const { return impl_->jobs.share_rows(samples); }
std::int64_t Pipeline::samples(const BatchTensors& inputs, const BatchTensors& targets) const {
  return impl_->axes.samples(inputs, targets);
}
bool Pipeline::reads_inputs() const { return impl_->runners->read_inputs(); }
const World& Pipeline::world() const { return impl_->world(); }
const PipelineOptions& Pipeline::options() const { return impl_->options; }
const Loss& Pipeline::loss() const { return impl_->loss; }
const StagedGraph& Pipeline::stages() const { return impl_->staged(); }
const Schedule& Pipeline::schedule() const { return impl_->full_schedule->schedule; }

std::vector<std::string> Pipeline::describe_stages() const {
  std::vector<std::string> lines;
  for (const StagePart& part : stages().parts) {
    std::string line = say("stage ", part.id.value(), ":");
    for (int n : part.nodes) line += " " + stages().graph.nodes[static_cast<std::size_t>(n)].name;
    lines.push_back(std::move(line));
  }
  return lines;
}

// Parameters and buffers.

std::map<std::string, torch::Tensor> Pipeline::local_state() {
  impl_->drain();
  std::map<std::string, torch::Tensor> state;
  for (const auto& runner : impl_->runners->all())
    for (const auto& stage : runner->stages())
      for (const Stage::Held& held : stage->state()) state.try_emplace(held.name, held.value);
  return state;
}

void Pipeline::sync_ties() {
  impl_->drain();
  const std::uint64_t round = impl_->runners->next_gathering().step;
  impl_->runners->run([&](RankRunner& runner) { runner.copies().synchronise(round); });
}

std::map<std::string, torch::Tensor> Pipeline::state() {
  impl_->world().require_own_process();
  impl_->steps.settle();
  if (const auto failure = impl_->world().failed()) {
    std::vector<RecoveryRank> ranks;
    for (const RankContext& context : impl_->world().contexts_after_failure())
      ranks.push_back({context, &impl_->runners->of(context.rank)});
    return recovered_state(ranks, impl_->runners->next_recovery(), *failure);
  }
  impl_->drain();
  std::map<std::string, torch::Tensor> all;
  const Tag tag = impl_->runners->next_gathering();
  impl_->runners->run([&](RankRunner& runner) {
    auto gathered = gather_tensors(runner.context(), tag, state_of(runner.context(), runner));
    if (runner.context().rank == WorldRank(0)) all = std::move(gathered);
  });
  return all;
}

void Pipeline::load_state(const std::map<std::string, torch::Tensor>& state) {
  impl_->drain();
  const Tag tag = impl_->runners->next_gathering();
  std::string error_text;
  impl_->runners->run([&](RankRunner& runner) {
    std::vector<Stage::Held> own;
    for (const auto& stage : runner.stages()) own.insert(own.end(), stage->state().begin(), stage->state().end());
    const std::string result = load_values(runner.context(), tag, own, state);
    if (runner.context().collects) error_text = result;
  });
  require<ConfigError>(error_text.empty(), error_text);
}

void Pipeline::copy_state_to(Cell& network) {
  const std::map<std::string, torch::Tensor> trained = state();
  if (world().is_main()) network.load_state(trained, Cell::Missing::keep);
}

void Pipeline::copy_state_to(torch::nn::Module& network) {
  const std::map<std::string, torch::Tensor> trained = state();
  if (!world().is_main()) return;
  std::map<std::string, torch::Tensor> own;
  for (auto& item : network.named_parameters()) own[item.key()] = item.value();
  for (auto& item : network.named_buffers())
    if (item.value().defined()) own[item.key()] = item.value();
  load_into(own, trained, Cell::Missing::keep);
}

void Pipeline::keep_average(double decay) {
  require<ConfigError>(decay >= 0 && decay < 1, "an average of the weights with a decay of ", decay,
                       ": give a number from 0 on and below 1, such as 0.999");
  impl_->require_own_values();
  impl_->on_each_rank([&](RankRunner& runner) { runner.updater().average().keep(decay); });
  impl_->keeps_average = true;
}

void Pipeline::use_average(bool average) {
  require<ConfigError>(impl_->keeps_average,
                       "use_average, but no average is kept: call keep_average(decay) before training");
  impl_->parts.require_whole_steps("use_average");
  if (average == impl_->uses_average) return;
  impl_->on_each_rank([](RankRunner& runner) { runner.updater().average().swap(); });
  impl_->uses_average = average;
}

std::map<std::string, torch::Tensor> Pipeline::average_state() {
  const bool before = impl_->uses_average;
  use_average(true);
  std::map<std::string, torch::Tensor> average = state();
  use_average(before);
  return average;
}

// Measurements.

Trace Pipeline::trace() {
  impl_->drain();
  Trace trace;
  trace.schedule = schedule();
  trace.replicas = world().replicas();
  for (const auto& [field, value] : impl_->fingerprint()) trace.settings[field] = value;
  trace.settings["transport"] = world().transport();
  note_layers(stages(), options().layer_costs, trace);
  const Tag tag = impl_->runners->next_gathering();
  impl_->runners->run([&](RankRunner& runner) {
    auto steps = gather_steps(runner.context(), tag, runner.recorder().steps());
    if (runner.context().rank == WorldRank(0)) trace.ranks = std::move(steps);
  });
  return trace;
}

void Pipeline::clear_trace() {
  impl_->on_each_rank([](RankRunner& runner) { runner.recorder().clear(); });
}

TimedSteps Pipeline::time_layers(const BatchTensors& inputs, const BatchTensors& targets, int steps) {
  require<ConfigError>(steps >= 1, "layers timed over ", steps, " steps: give at least 1");
  const auto run = [&](int count) {
    while (count-- > 0) train_step(inputs, targets).wait();
  };
  run(untimed_steps - 1);
  clear_trace();
  run(1);
  impl_->on_each_rank([](RankRunner& runner) { runner.clocks().set_running(true); });
  run(steps);
  const Trace steps_taken = trace();
  const Tag tag = impl_->runners->next_gathering();
  std::vector<NodeTimes> nodes;  // of replica 0
  impl_->on_each_rank([&](RankRunner& runner) {
    const bool is_first = runner.context().replica() == Replica(0);
    const auto own = is_first ? runner.clocks().times(static_cast<std::size_t>(steps)) : std::vector<NodeTimes>();
    for (const auto& of_rank : gather_records(runner.context(), tag, own, "the times of its layers"))
      nodes.insert(nodes.end(), of_rank.begin(), of_rank.end());
    runner.clocks().set_running(false);
  });
  return timed_steps_from(
      decided_on_rank_0(world(), impl_->number, Topic::layer_times, [&](const RankContext& context) {
        TimedSteps combined = put_together(stages(), nodes, steps_taken);
        if (options().device == "cpu")
          combined.costs.cache_bytes = static_cast<double>(cache_share(ranks_on_host(*context.endpoint)));
        return to_text(combined);
      }));
}

std::vector<Pipeline::Peak> Pipeline::peak_activations() {
  impl_->drain();
  std::vector<Peak> peaks;
  for (const auto& runner : impl_->runners->all()) peaks.push_back(peak_of(runner->context().rank, *runner));
  return peaks;
}

std::vector<Pipeline::Peak> Pipeline::peaks_of_all_ranks() {
  impl_->drain();
  std::vector<Peak> peaks;
  const Tag tag = impl_->runners->next_gathering();
  impl_->runners->run([&](RankRunner& runner) {
    auto all = gather_peaks(runner.context(), tag, peak_of(runner.context().rank, runner));
    if (runner.context().rank == WorldRank(0)) peaks = std::move(all);
  });
  return peaks;
}

}  // namespace penstock
