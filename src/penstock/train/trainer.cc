#include "penstock/train/trainer.h"

#include <cmath>

#include "penstock/base/error.h"

namespace penstock {

/// A step that was submitted and not reported yet.
struct Trainer::Pending {
  StepResult result;
  StepReport report;
};

Trainer::Trainer(Pipeline& pipeline, const TrainerOptions& options) : pipeline_(pipeline), options_(options) {
  require<ConfigError>(options.epochs >= 1, "epochs = ", options.epochs, ", but training takes at least 1");
  require<ConfigError>(!options.max_steps || *options.max_steps >= 1, "steps = ", options.max_steps.value_or(0),
                       ", but training takes at least 1");
  require<ConfigError>(options.evaluate_every >= 0, "evaluation every ", options.evaluate_every,
                       " epochs: give a number of epochs, or 0 for never");
}

void Trainer::fit(Loader& train, Loader* test) {
  const auto end = [this] {
    for (const auto& hook : hooks_) hook->on_end();
  };
  try {
    run_epochs(train, test);
  } catch (...) {
    end();  // a progress bar must not stay in front of the error's message
    throw;
  }
  end();
}

// By the number of epochs or steps before it; null where the optimisers keep their own.
std::function<double(Trainer::Moment)> Trainer::learning_rate(std::int64_t per_epoch, std::int64_t steps) const {
  if (!options_.learning_rate) return nullptr;
  const LearningRatePlan& plan = *options_.learning_rate;
  const std::int64_t total = plan.by_epoch ? (steps + per_epoch - 1) / per_epoch : steps;
  const LearningRateSchedule schedule =
      learning_rate_schedule(plan.schedule, {.rate = plan.rate, .total = total, .warmup = plan.warmup});
  return [schedule, by_epoch = plan.by_epoch](Moment moment) {
    return schedule(by_epoch ? moment.epoch : moment.step);
  };
}

void Trainer::run_epochs(Loader& train, Loader* test) {
  const std::int64_t per_epoch = train.batches_per_epoch();
  std::int64_t left = options_.max_steps.value_or(options_.epochs * per_epoch);
  const std::function<double(Moment)> rate = learning_rate(per_epoch, left);
  Moment moment;
  last_report_ = Clock::now();
  for (std::int64_t epoch = 0; epoch < options_.epochs && left > 0; ++epoch) {
    std::optional<Pending> pending;
    train.set_epoch(epoch);
    moment.epoch = epoch;
    StepReport step{epoch, 0, std::min(per_epoch, left), 0, 0, 0, {}, {}};
    for (auto& [inputs, targets] : train) {
      if (left-- == 0) break;
      step.samples = targets.size(0);
      if (rate) {
        step.learning_rate = rate(moment);
        pipeline_.set_learning_rate(*step.learning_rate);
      }
      ++moment.step;
      Pending next{pipeline_.train_step(inputs, targets), step};
      if (pending) report(*pending);
      pending.emplace(std::move(next));
      ++step.step;
    }
    if (pending) report(*pending);
    const bool is_last = epoch + 1 == options_.epochs || left <= 0;
    const bool is_due = options_.evaluate_every > 0 && ((epoch + 1) % options_.evaluate_every == 0 || is_last);
    if (test && is_due) {
      EvaluationReport evaluation = evaluate(*test);
      evaluation.epoch = epoch;
      for (const auto& hook : hooks_) hook->on_evaluation(evaluation);
      last_report_ = Clock::now();
    }
  }
}

void Trainer::report(const Pending& pending) {
  StepReport report = pending.report;
  report.loss = pending.result.loss();
  if (pipeline_.options().clip_norm) report.gradient_norm = pending.result.gradient_norm();
  const Clock::time_point now = Clock::now();
  report.seconds = std::chrono::duration<double>(now - last_report_).count();
  last_report_ = now;
  for (const auto& hook : hooks_) hook->on_step(report);
  require<Failure>(std::isfinite(report.loss), "the loss is ", report.loss, " at epoch ", report.epoch, ", step ",
                   report.step, ": training stops; try a lower learning rate, and look at the data of this batch");
}

EvaluationReport Trainer::evaluate(Loader& test) {
  // Sums, whatever the pipeline's reduction makes of a batch: exact over batches of any size.
  const std::vector<Metric> metrics = {correct_along(pipeline_.loss().class_dimension)};
  double right = 0, loss_sum = 0, weight = 0;
  EvaluationReport report;
  std::optional<StepResult> pending;
  const auto add = [&](const StepResult& result) {
    right += result.metrics()[0];
    loss_sum += result.loss_sum();
    weight += result.weight();
  };
  test.set_epoch(0);
  for (auto& [inputs, targets] : test) {
    StepResult next = pipeline_.evaluate(inputs, targets, metrics);
    if (pending) add(*pending);
    pending.emplace(std::move(next));
    report.samples += targets.size(0);
  }
  if (pending) add(*pending);
  report.loss = weight > 0 ? loss_sum / weight : 0;
  report.accuracy = weight > 0 ? right / weight : 0;
  return report;
}

LoaderOptions for_this_process(const Pipeline& pipeline, LoaderOptions options) {
  const World& world = pipeline.world();
  if (static_cast<int>(world.local_ranks().size()) < world.size())
    options.share = {.index = world.member(world.local_ranks().front()).replica().value(), .of = world.replicas()};
  options.inputs = pipeline.reads_inputs();
  return options;
}

}  // namespace penstock
