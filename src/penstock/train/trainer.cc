#include "penstock/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/checkpoint/checkpoint_reader.h"
#include "penstock/rank/batch.h"
#include "penstock/state/saved_state.h"
#include "penstock/train/test_run.h"
#include "penstock/world/host_memory.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

constexpr const char* trainer_state = "trainer";

}  // namespace

/// A step that was submitted but not reported.
struct Trainer::Pending {
  StepResult result;
  StepReport report;
};

Trainer::Trainer(Pipeline& pipeline, const TrainerOptions& options)
    : pipeline_(pipeline), options_(options), skipped_(options.on_nan) {
  require<ConfigError>(options.epochs >= 1, "epochs = ", options.epochs, ", but training takes at least 1");
  require<ConfigError>(!options.max_steps || *options.max_steps >= 1, "steps = ", options.max_steps.value_or(0),
                       ", but training takes at least 1");
  require<ConfigError>(options.evaluate_every >= 0, "evaluation every ", options.evaluate_every,
                       " epochs: pass a number of epochs, or 0 for never");
  if (options_.metrics)
    metrics_ = *options_.metrics;
  else
    track_accuracy();
}

void Trainer::insert(std::unique_ptr<Hook> hook) {
  Hook& added = *hook;
  if (auto* checkpoints = dynamic_cast<CheckpointHook*>(&added)) checkpoints_ = checkpoints;
  hooks_.add(std::move(hook));
  added.attached(*this);
}

void Trainer::count(const Metric& metric) {
  const auto same = [&](const Metric& counted) { return counted.name == metric.name; };
  if (std::none_of(metrics_.begin(), metrics_.end(), same)) metrics_.push_back(metric);
}

void Trainer::track_accuracy() { count(correct_along(pipeline_.loss().class_dimension)); }

void Trainer::fit(Loader& train, Loader* test) {
  require<ConfigError>(options_.on_nan != OnNan::rollback || checkpoints_,
                       "rollback returns to the last checkpoint, but none are written: add a CheckpointHook");
  require<ConfigError>(options_.on_nan == OnNan::stop || options_.on_nan == OnNan::go_on ||
                           ranks_of(pipeline_.world()).can_cancel_steps(),
                       "over ", pipeline_.world().transport(),
                       " a step that is refused ends the world, so that a loss ",
                       "that is not finite cannot be skipped: let the training stop there, or use the transport gloo");
  stopped_.reset();
  interrupted_.reset();
  requested_ = {};
  completed_ = 0;
  skipped_ = SkippedSteps(options_.on_nan);
  try {
    hooks_.call(&Hook::before_train);
    begin_checkpoints(train);
    for (bool is_done = false; !is_done;) {
      try {
        run_epochs(train, test);
        is_done = true;
      } catch (const ReturnToCheckpoint& wanted) {
        return_to_checkpoint(wanted.refusal, train);
      }
    }
    if (checkpoints_) write_last_checkpoint();
    if (!interrupted_) hooks_.call(&Hook::after_train);
  } catch (const Misuse&) {
    hooks_.call(&Hook::on_end);  // removes a progress bar before the error message is printed
    throw;
  } catch (...) {
    pipeline_.world().fail_by(std::current_exception());  // of a hook or loader: other processes wait for this one
    hooks_.call(&Hook::on_end);
    throw;
  }
  hooks_.call(&Hook::on_end);
}

bool Trainer::resume(const std::string& path) {
  std::optional<Manifest> manifest = pipeline_.load(path);
  if (!manifest) return false;
  std::string different =
      differences(state::bit_settings(pipeline_.options(), pipeline_.world(), pipeline_.schedule()), manifest->bits);
  if (pipeline_.options().seed != manifest->seed)
    different += say(different.empty() ? "" : ", ", "seed ", pipeline_.options().seed, " instead of ", manifest->seed);
  if (!different.empty() && pipeline_.world().is_main())
    warn(say("the checkpoint of step ", manifest->step,
             " was written with other settings, and so the last bits differ ",
             "from a training without interruption: ", different));
  resumed_ = Resumed{std::move(*manifest), folder_of_checkpoints(path)};
  return true;
}

void Trainer::continue_from(const Manifest& from, const Loader& train) {
  const auto state = from.states.find(trainer_state);
  require<DataError>(state != from.states.end(), "the checkpoint of step ", from.step,
                     " was written without a Trainer, and does not say where the training was: call Pipeline::load");
  TrainingProgress progress = progress_in(state->second, from.data);
  const bool is_whole = progress.owes_test && progress.data.step_in_epoch == progress.steps_per_epoch;
  if (is_whole) progress.data.step_in_epoch = progress_.steps_per_epoch;
  require<ConfigError>(
      progress.data.step_in_epoch == 0 || is_whole || progress.steps_per_epoch == progress_.steps_per_epoch,
      "an epoch has ", progress_.steps_per_epoch, " steps, and had ", progress.steps_per_epoch,
      " when the checkpoint of step ", from.step, " was written, in the middle of epoch ", progress.data.epoch,
      ": pass the same data and batch size");
  if (progress.data.seed != train.seed() && pipeline_.world().is_main())
    warn(say("the order of samples has seed ", train.seed(), " instead of ", progress.data.seed));
  progress.data.seed = train.seed();
  progress.steps_per_epoch = progress_.steps_per_epoch;
  progress_ = progress;
  completed_ = progress.completed;
  stopped_ = progress.stopped;
  hooks_.load(from.states);
}

void Trainer::begin_checkpoints(const Loader& train) {
  progress_ = {.data = {.seed = train.seed()}, .steps_per_epoch = train.batches_per_epoch()};
  std::optional<SavedPosition> newest;
  if (const auto resumed = std::exchange(resumed_, std::nullopt)) {
    continue_from(resumed->from, train);
    skipped_.continue_from(progress_.skipped);
    if (checkpoints_ && resumed->folder == checkpoints_->folder())
      newest = SavedPosition{completed_, progress_.owes_test};
  }
  if (checkpoints_) checkpoints_->open(pipeline_, newest);
  if (skipped_.returns()) {
    checkpoints_->set_newest(std::nullopt);
    checkpoints_->write(progress_, hooks_.states());  // so that there is one to return to
  }
  agreement_.reset();
  if (options_.stop_when || (checkpoints_ && checkpoints_->has_time())) agreement_.emplace(pipeline_.world());
}

void Trainer::write_last_checkpoint() {
  if (!pipeline_.has_gradients())
    checkpoints_->write(progress_, hooks_.states());
  else if (pipeline_.world().is_main())
    warn(say("no checkpoint of step ", pipeline_.training_steps(), " is written, because gradients of the last steps ",
             "wait for their update: set a number of steps that is a multiple of update_every"));
  checkpoints_->finish();
}

void Trainer::return_to_checkpoint(const InvalidLoss& refusal, const Loader& train) {
  checkpoints_->finish();
  const std::optional<Manifest> manifest = pipeline_.load(checkpoints_->folder());
  if (!manifest)
    throw InvalidLoss(refusal.where(), say(refusal.what(), ": there is no undamaged checkpoint in ",
                                           checkpoints_->folder(), " to return to"));
  skipped_.add_return(refusal, manifest->step);
  continue_from(*manifest, train);
  checkpoints_->set_newest(SavedPosition{completed_, progress_.owes_test});
  if (pipeline_.world().is_main()) warn(say("training has returned to the checkpoint of step ", manifest->step));
}

bool Trainer::prepare_step(const TrainingPosition& next, std::optional<Pending>& pending) {
  if (checkpoints_) {
    checkpoints_->check();
    if (checkpoints_->is_due_by_steps(next)) requested_.save = true;
  }
  if (agreement_) {
    const StepRequests own{checkpoints_ && checkpoints_->is_due_by_time(), stop_request()};
    if (const auto all = agreement_->agree(own, StepKind::of_training)) requested_.add(*all);
  }
  // A checkpoint holds no gradients, so that it waits for the next update.
  if ((!requested_.save && !requested_.stop) || pipeline_.has_gradients()) return true;
  const StepRequests now = std::exchange(requested_, {});
  if (pending) report(*pending);
  pending.reset();
  // That report has ended the training after one more step, as it does when nothing was requested.
  if (stopped_) return true;
  if (now.save && checkpoints_) checkpoints_->write(progress_, hooks_.states());
  interrupted_ = now.stop;
  return !interrupted_;
}

// Epochs before the position may have had another number of steps, in a training that was resumed.
Trainer::Limits Trainer::limits_of(std::int64_t steps_per_epoch) const {
  const auto [epoch, step, seed] = progress_.data;
  const std::int64_t most_epochs = (std::numeric_limits<std::int64_t>::max() - completed_) / steps_per_epoch;
  const std::int64_t epochs_left = std::clamp<std::int64_t>(options_.epochs - epoch, 0, most_epochs);
  Limits limits{.per_epoch = steps_per_epoch,
                .steps = completed_ + std::max<std::int64_t>(0, epochs_left * steps_per_epoch - step)};
  limits.steps = std::min(limits.steps, options_.max_steps.value_or(limits.steps));
  limits.epochs =
      epoch + (step + std::max<std::int64_t>(0, limits.steps - completed_) + steps_per_epoch - 1) / steps_per_epoch;
  return limits;
}

// Null if the optimisers keep their own learning rates.
Trainer::RateAt Trainer::learning_rate(const Limits& limits) const {
  if (!options_.learning_rate) return nullptr;
  const LearningRatePlan& plan = *options_.learning_rate;
  const LearningRateSchedule schedule = learning_rate_schedule(plan, plan.by_epoch ? limits.epochs : limits.steps);
  return [schedule, by_epoch = plan.by_epoch](const TrainingPosition& position) {
    return schedule(by_epoch ? position.epoch : position.completed);
  };
}

void Trainer::run_epochs(Loader& train, Loader* test) {
  const Limits limits = limits_of(train.batches_per_epoch());
  const RateAt rate = learning_rate(limits);
  if (progress_.owes_test) end_epoch(limits, test);
  while (completed_ < limits.steps && !stopped_ && !interrupted_) {
    const std::int64_t begin = last_report_ns_ = now_ns();
    run_epoch(train, std::min(limits.per_epoch, progress_.data.step_in_epoch + limits.steps - completed_), rate);
    if (interrupted_) return;
    EpochReport report = progress_.epoch_report;
    if (progress_.epoch_weight > 0) report.loss /= progress_.epoch_weight;
    if (rate) report.next_learning_rate = rate({report.epoch + 1, 0, 0, completed_});
    report.seconds = s_since(begin);
    hooks_.call(&Hook::after_epoch, report);
    end_epoch(limits, test);
  }
}

void Trainer::end_epoch(const Limits& limits, Loader* test) {
  const auto [number, step, seed] = progress_.data;
  const bool is_last = completed_ >= limits.steps || stopped_;
  const bool is_due = options_.evaluate_every > 0 && ((number + 1) % options_.evaluate_every == 0 || is_last);
  progress_.stopped = stopped_;
  progress_.owes_test = test && is_due;
  if (progress_.owes_test && !evaluate_after(number, *test, true)) return;
  progress_.owes_test = false;
  progress_.stopped = stopped_;
  if (step < limits.per_epoch) return;  // a training that ends in the middle of an epoch
  progress_.data = {number + 1, 0, seed};
  progress_.epoch_report = {};
  progress_.epoch_weight = 0;
}

bool Trainer::interrupts_test() {
  if (!agreement_) return false;
  if (const auto all = agreement_->agree({.stop = stop_request()}, StepKind::of_test)) requested_.add(*all);
  // As in prepare_step(): a checkpoint holds no gradients. The training then ends after the next update.
  if (!requested_.stop || pipeline_.has_gradients()) return false;
  interrupted_ = std::exchange(requested_, {}).stop;
  return true;
}

void Trainer::run_epoch(Loader& train, std::int64_t steps, const RateAt& rate) {
  TrainingPosition position{progress_.data.epoch, progress_.data.step_in_epoch, steps, completed_};
  train.set_epoch(position.epoch);
  train.skip_batches(position.step);
  hooks_.call(&Hook::before_epoch, position);
  progress_.epoch_report.epoch = position.epoch;

  const bool keeps_outputs = hooks_.want_outputs(WantsOutputs::of_all);
  std::optional<Pending> pending;
  for (auto& [inputs, targets] : train) {
    if (position.step == steps || stopped_ || !prepare_step(position, pending)) break;
    if (skipped_.contains(completed_)) {
      if (pending) report(*std::exchange(pending, std::nullopt));
      pipeline_.skip_step();
      ++progress_.epoch_report.skipped;
      advance(position.step++);
      position.completed = ++completed_;
      continue;
    }
    StepReport step{.epoch = position.epoch, .step = position.step, .steps_in_epoch = steps};
    step.samples = BatchShare(pipeline_).samples(inputs, targets);
    step.targets = targets.count() > 0 ? targets[0].numel() : step.samples;
    if (rate) {
      step.learning_rate = rate(position);
      pipeline_.set_learning_rate(*step.learning_rate);
    }
    if (completed_ == 0) require_full(step);
    hooks_.call(&Hook::before_step, position);
    const StepOptions how{.keep_outputs = keeps_outputs,
                          .refuse_invalid_loss = skipped_.refuses(),
                          .require_previous = pending && skipped_.ends_at_next()};
    Pending next{pipeline_.train_step(inputs, targets, how), step};
    ++position.step;
    position.completed = ++completed_;
    if (pending) report(*pending);
    pending.emplace(std::move(next));
    if (options_.look_ahead) continue;
    report(*pending);
    pending.reset();
  }
  if (pending) report(*pending);
}

// Only the last batch of an epoch may be smaller, so the first of several is a full one.
void Trainer::require_full(const StepReport& first) const {
  const int micro_batches = pipeline_.options().micro_batches, replicas = pipeline_.world().replicas();
  const std::int64_t full = std::int64_t{micro_batches} * replicas;
  // The replica with the largest share needs a sample per micro-batch.
  require<ConfigError>(first.samples > full - replicas || first.steps_in_epoch == 1, "batches of ", first.samples,
                       " samples have fewer than 1 for each of ", micro_batches, " micro-batches on each of ", replicas,
                       replicas == 1 ? " replica" : " replicas", ": pass batches of ", full,
                       " samples or more, or fewer micro-batches");
}

bool Trainer::is_valid(const Pending& pending) {
  try {
    pending.result.loss();
    skipped_.add_valid();
    return true;
  } catch (const InvalidLoss& refusal) {
    const SkippedStep skipped = skipped_.add(refusal, pending.report, progress_.completed);
    if (pipeline_.world().is_main())
      warn(say("step ", skipped.step, " of epoch ", skipped.epoch, " is left out: ", skipped.reason));
    hooks_.call(&Hook::after_skipped_step, skipped);
    if (skipped_.returns()) throw ReturnToCheckpoint{refusal};
    ++progress_.epoch_report.skipped;
    advance(skipped.step);
    return false;
  }
}

void Trainer::report(const Pending& pending) {
  if (!is_valid(pending)) return;
  StepReport report = pending.report;
  report.loss = pending.result.loss();
  report.weight = pending.result.weight();
  if (pipeline_.options().clips() && pending.result.has_gradient_norm())
    report.gradient_norm = pending.result.gradient_norm();
  if (pipeline_.options().precision == Precision::fp16) report.update_skipped = pending.result.update_skipped();
  if (options_.measure) {
    const StepStats use = pending.result.use();
    report.bubble = use.idle;
    report.peak_activations = use.peak_activations;
    report.peak_resident_bytes = peak_resident_bytes();
  }
  report.seconds = s_since(last_report_ns_);
  last_report_ns_ = now_ns();
  EpochReport& epoch = progress_.epoch_report;
  ++epoch.steps;
  epoch.samples += report.samples;
  epoch.targets += report.targets;
  epoch.loss += pending.result.loss_sum();
  progress_.epoch_weight += report.weight;
  advance(report.step);
  hooks_.report_outputs(pending.result, report);
  hooks_.call(&Hook::after_step, report);
  // A pipeline that accumulates gradients over several calls refuses no step.
  require<Failure>(!skipped_.refuses() || std::isfinite(report.loss), "the loss is ", report.loss, " at epoch ",
                   report.epoch, ", step ", report.step,
                   ": training stops; try a lower learning rate, and look at the data of this batch");
}

void Trainer::advance(std::int64_t step) {
  progress_.data.step_in_epoch = step + 1;
  ++progress_.completed;
  progress_.skipped = skipped_.counts();
}

EvaluationReport Trainer::evaluate(Loader& test) { return *evaluate_after(0, test, false); }

std::optional<EvaluationReport> Trainer::evaluate_after(std::int64_t epoch, Loader& test, bool may_end_early) {
  TestRun run{.metrics = metrics_,
              .may_lack_targets = !options_.metrics,
              .position = {.epoch = epoch, .completed = completed_}};
  if (may_end_early) run.ends_early = [this] { return interrupts_test(); };
  auto report = run_test(pipeline_, test, hooks_, std::move(run));
  last_report_ns_ = now_ns();
  return report;
}

Tensors Trainer::predict(Loader& data, const InferOptions& options) {
  std::vector<Tensors> parts;  // for each output, the batches' rows
  std::optional<InferResult> pending;
  const auto add = [&](const InferResult& result) {
    if (!result.has_outputs()) return;
    const Tensors& outputs = result.outputs();
    parts.resize(outputs.size());
    for (std::size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].defined()) parts[i].push_back(outputs[i]);
  };
  const rank::BatchAxes axes("inputs", pipeline_.options().batch_dims.inputs);
  data.set_epoch(0);
  for (auto& [inputs, targets] : data) {
    const std::int64_t rows = axes.samples(inputs.list()), samples = BatchShare(pipeline_).samples(inputs, targets);
    require<ConfigError>(rows == samples, "predict got ", rows, " rows of a batch of ", samples,
                         ": pass it a loader of whole batches, without for_this_process");
    InferResult next = pipeline_.infer(inputs, options);
    if (pending) add(*pending);
    pending.emplace(std::move(next));
  }
  if (pending) add(*pending);
  Tensors whole;
  for (const Tensors& rows : parts) whole.push_back(rows.empty() ? torch::Tensor() : torch::cat(rows));
  return whole;
}

LoaderOptions for_this_process(const Pipeline& pipeline, LoaderOptions options) {
  const World& world = pipeline.world();
  if (!ranks_of(world).is_alone()) options.share = {.index = world.replica(), .of = world.replicas()};
  options.inputs = BatchShare(pipeline).reads_inputs();
  return options;
}

}  // namespace penstock
