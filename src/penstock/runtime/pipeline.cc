#include "penstock/runtime/pipeline.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/layers/autocast.h"
#include "penstock/model/loss_checks.h"
#include "penstock/runtime/fingerprint.h"
#include "penstock/runtime/gathered_gradients.h"
#include "penstock/runtime/inferences.h"
#include "penstock/runtime/load_state.h"
#include "penstock/runtime/partition_network.h"
#include "penstock/runtime/peaks.h"
#include "penstock/runtime/recovered_state.h"
#include "penstock/runtime/time_layers.h"
#include "penstock/schedule/schedule.h"
#include "penstock/world/agreement.h"
#include "penstock/world/device.h"
#include "penstock/world/gather.h"
#include "penstock/world/preflight.h"

namespace penstock {

// Jobs on the ranks' threads share ownership, because a job that hangs after a failure may outlive the Pipeline.
class Pipeline::Impl : public std::enable_shared_from_this<Pipeline::Impl> {
 public:
  Impl(World& world, Cell& network, Loss loss, const PipelineOptions& options)
      : world_(world),
        options_(options),
        loss_(complete(std::move(loss))),
        axes_{{"inputs", options.input_layout}, {"targets", options.target_layout}, {"outputs", options.output_layout}},
        id_(world.next_pipeline()),
        schedules_({.options = options, .ranks = world.stages()}),
        staged_(partition_network(network, options_, schedules_.training().stage_count())),
        runners_(world.local_ranks().size()) {
    keep_shapes_alone(options_.sample);
    options_.schedule = schedules_.source();
    options_.device = resolved_device(options_.device);
    require_layouts(options_, staged_.graph.inputs);
    const double clip_norm = options_.clip_norm.value_or(1);
    require<ConfigError>(clip_norm > 0, "gradients clipped to a norm of ", clip_norm, ": give a positive number");
    require_loss_scaling(options_.loss_scaling);
    require_precision(options_.precision, device_of(options_.device, 0).type());
    require<ConfigError>(options_.compare_batches >= 0, "batches are compared in every ", options_.compare_batches,
                         "th step: give a positive number, or 0 for never");
    if (world.is_main())
      for (const std::string& warning : staged_.warnings) warn(warning);
    const std::shared_ptr<const KernelSelection> kernels = kernels_from(options_.kernels, options_.kernel_selection);
    std::vector<bool> node_trains;
    world_.run_on_local_ranks([&](const RankContext& context) {
      auto& runner = runner_of(context);
      runner = std::make_unique<RankRunner>(
          staged_, schedules_.training(),
          RankSetting{
              id_, context, loss_,
              LossReductions{options_.reduction, options_.replica_reduction, options_.reported_loss},
              options_.clip_norm, options_.boundary_shape, options_.seed, options_.precision, options_.loss_scaling,
              options_.compare_batches,
              device_of(options_.device, context.is_alone ? context.rank.value() : local_rank_of(context.rank.value())),
              kernels, options_.count_bytes, axes_});
      auto trains = compare(context);
      if (context.collects) node_trains = std::move(trains);
    });
    lower(node_trains);
    inferences_.emplace(world, Inferences::Setting{staged_.graph.inputs, options_.micro_batches,
                                                   schedule().rank_of(StageId(staged_.stage_count() - 1)), axes_});
  }

  void set_trainable(const std::string& name, bool trains) {
    require<ConfigError>(next_part_ == StepPart::whole, trains ? "unfreeze" : "freeze", " before the last step's ",
                         "update: call step() first");
    require_parameters(staged_, name, options_.seed);
    drain();
    std::vector<bool> node_trains;
    world_.run_on_local_ranks([&](const RankContext& context) {
      runner_of(context)->set_trainable(name, trains);
      auto all = compare(context);
      if (context.collects) node_trains = std::move(all);
    });
    lower(node_trains);
  }

  void optimize_with(const OptimizerFactory& factory) {
    drain();
    world_.run_on_local_ranks([&](const RankContext& context) { runner_of(context)->make_optimizers(factory); });
    has_optimizer_ = true;
  }

  StepResult submit(const BatchTensors& inputs, const BatchTensors& targets, bool training,
                    const std::vector<Metric>& metrics, const StepOptions& how = {}) {
    require<ConfigError>(!training || has_optimizer_,
                         "train_step before optimize_with: give the pipeline an optimiser first");
    require<ConfigError>(!training || next_part_ == StepPart::whole || gathered_.gathers(),
                         "a step is begun before the last one's update: call step() first");
    if (training && gathered_.gathers()) {
      const StepResult result = forward_backward(inputs, targets, how);
      if (gathered_.is_whole()) later_part(StepPart::update, 1);
      return result;
    }
    auto job = std::make_shared<StepJob>(make_job(inputs, targets, training, metrics));
    job->keeps_outputs = how.keep_outputs;
    return start(job);
  }

  StepResult forward_backward(const BatchTensors& inputs, const BatchTensors& targets, const StepOptions& how = {}) {
    require<ConfigError>(next_part_ != StepPart::update,
                         "forward_backward between reduce_gradients and the update: call step() first");
    auto job = std::make_shared<StepJob>(make_job(inputs, targets, true, {}, StepPart::forward_backward));
    job->keeps_outputs = how.keep_outputs;
    job->shares = gathered_.add(weight_of(*job));
    next_part_ = StepPart::reduce;
    begun_ = job;
    return start(job);
  }

  void later_part(StepPart part, double divisor) {
    require<ConfigError>(has_optimizer_ || part != StepPart::update,
                         "step before optimize_with: give the pipeline an optimiser first");
    require<ConfigError>(next_part_ == part || (part == StepPart::update && next_part_ == StepPart::reduce),
                         part == StepPart::reduce ? "reduce_gradients" : "step",
                         next_part_ == StepPart::whole ? " without gradients: call forward_backward first"
                                                       : " a second time: call step() once it is done");
    require<ConfigError>(std::isfinite(divisor) && divisor != 0, "gradients divided by ", divisor,
                         ": give a finite scale that is not 0");
    if (part == StepPart::update && next_part_ == StepPart::reduce) later_part(StepPart::reduce, 1);
    auto job = std::make_shared<StepJob>(*begun_);
    job->part = part;
    job->gradient_divisor = divisor;
    job->learning_rate = learning_rate_;
    for (int r = 0; r < world_.replicas(); ++r)
      job->plans[static_cast<std::size_t>(r)] = schedules_.for_training(job->layout.micro_batches(Replica(r)), part);
    next_part_ = part == StepPart::reduce ? StepPart::update : StepPart::whole;
    gathered_.clear();
    const StepResult result = start(job);
    if (part != StepPart::update) return;
    // The result of the step is that of forward_backward.
    if (options_.clip_norm) begun_->state->set_gradient_norm(result.gradient_norm());
    if (options_.precision == Precision::fp16 && result.update_skipped()) begun_->state->set_update_skipped();
    begun_.reset();
  }

  std::map<std::string, torch::Tensor> local_gradients() {
    require<ConfigError>(next_part_ != StepPart::whole, "there are no gradients: call forward_backward first");
    drain();
    std::map<std::string, torch::Tensor> all;
    std::vector<std::vector<std::pair<std::string, torch::Tensor>>> by_rank(runners_.size());
    world_.run_on_local_ranks(
        [&](const RankContext& context) { by_rank[local_index(context)] = runner_of(context)->gradients(); });
    for (auto& gradients : by_rank)
      for (auto& [name, gradient] : gradients) all.try_emplace(name, gradient);
    return all;
  }

  void sync_ties() {
    drain();
    const std::uint64_t round = ++gatherings_;
    world_.run_on_local_ranks([&](const RankContext& context) { runner_of(context)->synchronise(round); });
  }

  StepResult start(const std::shared_ptr<StepJob>& job) {
    job->state = std::make_shared<StepState>(static_cast<int>(runners_.size()), world_.failures());
    // One step runs and one waits behind it; submitting a third waits for the first.
    if (before_last_) before_last_->finish();
    before_last_ = std::exchange(last_, job->state);
    post_to_runners([job](RankRunner& runner) { runner.run(*job); });
    return StepResult(job->state);
  }

  InferResult infer(const Tensors& inputs, const InferOptions& options) {
    auto job = std::make_shared<StepJob>(inferences_->make_job(next_step_, inputs, options, post_while_alive()));
    ++next_step_;
    job->state = std::make_shared<StepState>(static_cast<int>(runners_.size()), world_.failures());
    for (int r = 0; r < world_.replicas(); ++r)
      job->plans.push_back(schedules_.for_forward(inferences_->micro_batches(*job, Replica(r))));
    inferences_->add(*job);
    before_last_ = std::exchange(last_, job->state);
    post_to_runners([job](RankRunner& runner) { runner.run(*job); });
    return InferResult(job->state, job->inference->state);
  }

  std::shared_ptr<SessionState> open_session() { return inferences_->open_session(post_while_alive()); }

  /// Waits for all submitted jobs; throws the error of a failed one.
  void drain() {
    world_.require_own_process();
    inferences_->finish();
    if (before_last_) before_last_->finish();
    if (last_) last_->finish();
  }

  /// Ends the pipeline. Reports to other processes that an exception ended it here, or logs unreported failures.
  void close(bool by_exception) noexcept {
    if (by_exception) world_.leave_pipeline(id_);
    inferences_->settle();
    if (before_last_) before_last_->settle();
    if (last_) last_->settle();
    if (!by_exception) world_.failures()->log_unreported("a pipeline ends with");
  }

  RowRange share_rows(std::int64_t samples) const {
    if (!is_spread()) return {0, samples};
    return layout_of(samples).share(world_.context(world_.local_ranks().front()).replica());
  }

  bool reads_inputs() const {
    for (const auto& runner : runners_)
      for (const auto& stage : runner->stages())
        if (!stage->part().graph_inputs.empty()) return true;
    return false;
  }

  std::map<std::string, torch::Tensor> local_state() {
    drain();
    std::map<std::string, torch::Tensor> state;
    for (const auto& runner : runners_)
      for (const auto& stage : runner->stages())
        for (const Stage::Held& held : stage->state()) state.try_emplace(held.name, held.value);
    return state;
  }

  std::map<std::string, torch::Tensor> state() {
    world_.require_own_process();
    for (const auto& step : {before_last_, last_})
      if (step) step->settle();
    if (const auto failure = world_.failed()) return state_after_failure(*failure);
    drain();
    std::map<std::string, torch::Tensor> all;
    const GatherTag tag{id_, ++gatherings_};
    world_.run_on_local_ranks([&](const RankContext& context) {
      auto gathered = gather_tensors(context, tag, state_of(context, *runner_of(context)));
      if (context.rank == WorldRank(0)) all = std::move(gathered);
    });
    return all;
  }

  std::map<std::string, torch::Tensor> state_after_failure(const std::string& failure) {
    std::vector<RecoveryRank> ranks;
    for (const RankContext& context : world_.contexts_after_failure())
      ranks.push_back({context, runner_of(context).get()});
    return recovered_state(ranks, {id_, recoveries_ += 2}, failure);
  }

  void load_state(const std::map<std::string, torch::Tensor>& state) {
    drain();
    const GatherTag tag{id_, ++gatherings_};
    std::string error_text;
    world_.run_on_local_ranks([&](const RankContext& context) {
      std::vector<Stage::Held> own;
      for (const auto& stage : runner_of(context)->stages())
        own.insert(own.end(), stage->state().begin(), stage->state().end());
      const std::string result = load_values(context, tag, own, state);
      if (context.collects) error_text = result;
    });
    require<ConfigError>(error_text.empty(), error_text);
  }

  Trace trace() {
    drain();
    Trace trace;
    trace.schedule = full_plan_->schedule;
    trace.replicas = world_.replicas();
    for (const auto& [field, value] : fingerprint()) trace.settings[field] = value;
    trace.settings["transport"] = world_.transport();
    note_layers(staged_, options_.layer_costs, trace);
    const GatherTag tag{id_, ++gatherings_};
    world_.run_on_local_ranks([&](const RankContext& context) {
      auto steps = gather_steps(context, tag, runner_of(context)->recorder().steps());
      if (context.rank == WorldRank(0)) trace.ranks = std::move(steps);
    });
    return trace;
  }

  GatherTag next_gathering() { return {id_, ++gatherings_}; }

  void on_each_runner(const std::function<void(RankRunner&)>& job) {
    drain();
    world_.run_on_local_ranks([&](const RankContext& context) { job(*runner_of(context)); });
  }

  void update_every(int calls) {
    require_whole_steps("update_every");
    gathered_.update_every(calls);
  }

  void require_whole_steps(const char* what) const {
    require<ConfigError>(next_part_ == StepPart::whole, what,
                         " while gradients wait for their update: call step() first");
  }

  void set_learning_rate(double rate) {
    require<ConfigError>(std::isfinite(rate) && rate >= 0, "learning rate is ", rate,
                         ": give a finite number, 0 or more");
    learning_rate_ = rate;
  }

  std::vector<Peak> peak_activations() {
    std::vector<Peak> peaks;
    drain();
    for (std::size_t local = 0; local < runners_.size(); ++local)
      peaks.push_back(peak_of(world_.local_ranks()[local], *runners_[local]));
    return peaks;
  }

  std::vector<Peak> peaks_of_all_ranks() {
    drain();
    std::vector<Peak> peaks;
    const GatherTag tag{id_, ++gatherings_};
    world_.run_on_local_ranks([&](const RankContext& context) {
      auto all = gather_peaks(context, tag, peak_of(context.rank, *runner_of(context)));
      if (context.rank == WorldRank(0)) peaks = std::move(all);
    });
    return peaks;
  }

  const World& world() const { return world_; }
  const PipelineOptions& options() const { return options_; }
  const Loss& loss() const { return loss_; }
  const BatchAxesOf& axes() const { return axes_; }
  const StagedGraph& staged() const { return staged_; }
  const Schedule& schedule() const { return full_plan_->schedule; }

 private:
  /// Compares the ranks' settings. Returns for each node whether its parameters train.
  std::vector<bool> compare(const RankContext& context) {
    return compare_ranks(context,
                         {id_, fingerprint(), runner_of(context)->trainable_nodes(), staged_.graph.nodes.size()});
  }

  void lower(const std::vector<bool>& node_trains) {
    schedules_.set_partition(links_of(staged_, node_trains), world_.replicas() > 1 || has_ties(staged_, node_trains));
    full_plan_ = schedules_.for_training(options_.micro_batches);
  }

  std::size_t local_index(const RankContext& context) const {
    return static_cast<std::size_t>(context.rank.value() - world_.local_ranks().front().value());
  }
  std::unique_ptr<RankRunner>& runner_of(const RankContext& context) { return runners_[local_index(context)]; }

  /// Queues work for every local rank, behind earlier work.
  void post_to_runners(const std::function<void(RankRunner&)>& work) {
    for (std::size_t local = 0; local < runners_.size(); ++local)
      world_.post(world_.local_ranks()[local],
                  [self = shared_from_this(), work, runner = runners_[local].get()] { work(*runner); });
  }

  PostToRunners post_while_alive() {
    return [weak = weak_from_this()](const std::function<void(RankRunner&)>& work) {
      const auto self = weak.lock();
      if (self) self->post_to_runners(work);
      return self != nullptr;
    };
  }

  /// Whether other processes hold ranks of the world, so that this one may pass only its replica's share of the inputs.
  bool is_spread() const { return static_cast<int>(runners_.size()) < world_.size(); }

  BatchLayout layout_of(std::int64_t samples) const {
    return BatchLayout({.samples = samples, .replicas = world_.replicas(), .micro_batches = options_.micro_batches});
  }

  StepJob make_job(const BatchTensors& inputs, const BatchTensors& targets, bool training,
                   const std::vector<Metric>& metrics, StepPart part = StepPart::whole) {
    const std::int64_t samples = axes_.samples(inputs, targets);
    require_targets(loss_, metrics, targets);
    std::int64_t first_row = 0;
    if (reads_inputs())
      first_row =
          first_row_of(axes_.inputs, inputs.list(), {staged_.graph.inputs, samples, share_rows(samples), is_spread()});
    StepJob job{next_step_++, training_steps_, training, part,           1,      layout_of(samples), {}, inputs.list(),
                first_row,    targets.list(),  metrics,  learning_rate_, nullptr};
    if (training) ++training_steps_;
    if (training && std::exchange(is_first_batch_, false) && world_.is_main()) warn_of_few_samples(job.layout);
    for (int r = 0; r < world_.replicas(); ++r) {
      const int micro_batches = job.layout.micro_batches(Replica(r));
      job.plans.push_back(training ? schedules_.for_training(micro_batches, part)
                                   : schedules_.for_forward(micro_batches));
    }
    return job;
  }

  /// The total weight of a batch's samples under Reduction::mean; 0 under Reduction::sum.
  double weight_of(const StepJob& job) const {
    if (options_.reduction == Reduction::sum) return 0;
    return loss_factors(loss_, {.micro_batches = options_.reduction}, {job.targets, axes_.targets}, job.layout,
                        Replica(0), world_.replicas())
        .total_weight;
  }

  Fingerprint fingerprint() const {
    return fingerprint_of(options_, {world_, staged_, schedules_.training(), loss_, axes_});
  }

  World& world_;
  PipelineOptions options_;
  Loss loss_;
  BatchAxesOf axes_;
  std::uint32_t id_;
  ScheduleCache schedules_;
  StagedGraph staged_;
  std::vector<std::unique_ptr<RankRunner>> runners_;   // by local rank
  std::shared_ptr<const CompiledSchedule> full_plan_;  // for all m micro-batches
  std::shared_ptr<StepState> last_, before_last_;
  std::optional<Inferences> inferences_;
  std::uint64_t next_step_ = 0;
  bool is_first_batch_ = true;
  std::uint64_t training_steps_ = 0;
  std::uint64_t gatherings_ = 0;
  std::uint64_t recoveries_ = 0;
  bool has_optimizer_ = false;
  StepPart next_part_ = StepPart::whole;  // `reduce` or `update` after the first part of a step
  std::shared_ptr<const StepJob> begun_;  // the forward_backward of that step
  std::optional<double> learning_rate_;
  GatheredGradients gathered_;
};

Pipeline::Pipeline(World& world, Cell& network, Loss loss, const PipelineOptions& options)
    : impl_(std::make_shared<Impl>(world, network, loss, options)) {}

Pipeline::Pipeline(World& world, const torch::nn::Sequential& network, Loss loss, const PipelineOptions& options)
    : Pipeline(world, *from_sequential(network), std::move(loss), options) {}

Pipeline::~Pipeline() { impl_->close(std::uncaught_exceptions() > exceptions_); }

void Pipeline::set_optimizer(const OptimizerFactory& factory) { impl_->optimize_with(factory); }
void Pipeline::on_each_rank(const std::function<void(RankRunner&)>& job) { impl_->on_each_runner(job); }
GatherTag Pipeline::next_gathering() { return impl_->next_gathering(); }
void Pipeline::require_whole_steps(const char* what) const { impl_->require_whole_steps(what); }
void Pipeline::update_every(int calls) { impl_->update_every(calls); }

StepResult Pipeline::train_step(const BatchTensors& inputs, const BatchTensors& targets, const StepOptions& options) {
  require_own_values();
  return impl_->submit(inputs, targets, true, {}, options);
}
StepResult Pipeline::evaluate(const BatchTensors& inputs, const BatchTensors& targets,
                              const std::vector<Metric>& metrics, const StepOptions& options) {
  return impl_->submit(inputs, targets, false, metrics, options);
}

InferResult Pipeline::infer(const BatchTensors& inputs, const InferOptions& options) {
  return impl_->infer(inputs.list(), options);
}
InferenceSession Pipeline::open_session() { return InferenceSession(impl_->open_session()); }

RowRange Pipeline::share_rows(std::int64_t samples) const { return impl_->share_rows(samples); }
std::int64_t Pipeline::samples(const BatchTensors& inputs, const BatchTensors& targets) const {
  return impl_->axes().samples(inputs, targets);
}
bool Pipeline::reads_inputs() const { return impl_->reads_inputs(); }
const World& Pipeline::world() const { return impl_->world(); }
const PipelineOptions& Pipeline::options() const { return impl_->options(); }
const Loss& Pipeline::loss() const { return impl_->loss(); }
const StagedGraph& Pipeline::stages() const { return impl_->staged(); }
const Schedule& Pipeline::schedule() const { return impl_->schedule(); }

StepResult Pipeline::forward_backward(const BatchTensors& inputs, const BatchTensors& targets) {
  require_own_values();
  return impl_->forward_backward(inputs, targets);
}
void Pipeline::reduce_gradients(double scale) { impl_->later_part(StepPart::reduce, scale); }
void Pipeline::step() { impl_->later_part(StepPart::update, 1); }
std::map<std::string, torch::Tensor> Pipeline::local_gradients() { return impl_->local_gradients(); }
void Pipeline::sync_ties() { impl_->sync_ties(); }

std::map<std::string, torch::Tensor> Pipeline::local_state() { return impl_->local_state(); }
std::map<std::string, torch::Tensor> Pipeline::state() { return impl_->state(); }
void Pipeline::load_state(const std::map<std::string, torch::Tensor>& state) { impl_->load_state(state); }
Trace Pipeline::trace() { return impl_->trace(); }
void Pipeline::clear_trace() {
  impl_->on_each_runner([](RankRunner& runner) { runner.clear_recorder(); });
}
void Pipeline::set_learning_rate(double rate) { impl_->set_learning_rate(rate); }
void Pipeline::freeze(const std::string& name) { impl_->set_trainable(name, false); }
void Pipeline::unfreeze(const std::string& name) { impl_->set_trainable(name, true); }
std::vector<Pipeline::Peak> Pipeline::peak_activations() { return impl_->peak_activations(); }
std::vector<Pipeline::Peak> Pipeline::peaks_of_all_ranks() { return impl_->peaks_of_all_ranks(); }

}  // namespace penstock
