#include "penstock/pipeline/jobs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/log.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
using namespace rank;

void StepParts::require_whole_steps(const char* what) const {
  require<ConfigError>(!has_gradients(), what, " while gradients wait for their update: call step() first");
}

void StepParts::require_forward_backward() const {
  require<ConfigError>(next_ != StepPart::update,
                       "forward_backward between reduce_gradients and the update: call step() first");
}

void StepParts::require_later(StepPart part) const {
  require<ConfigError>(next_ == part || (part == StepPart::update && needs_reduction()),
                       part == StepPart::reduce ? "reduce_gradients" : "step",
                       has_gradients() ? " a second time: call step() once it is done"
                                       : " without gradients: call forward_backward first");
}

// Under Reduction::mean, the gradients of earlier calls are scaled down as further samples are added.
void StepParts::begin(const std::shared_ptr<StepJob>& job, double weight) {
  const double before = weight_;
  weight_ += weight;
  const bool continues = calls_++ > 0;
  if (continues && weight_ > 0)
    job->shares = {true, before / weight_, weight / weight_};
  else
    job->shares = {.continues = continues};
  next_ = StepPart::reduce;
  begun_ = job;
}

void StepParts::end(StepPart part) {
  calls_ = 0;
  weight_ = 0;
  next_ = part == StepPart::reduce ? StepPart::update : StepPart::whole;
  if (part == StepPart::update) begun_.reset();
}

// Sessions and results may outlive the pipeline, and must not keep its runners alive.
std::shared_ptr<SessionState> Inferences::open_session() {
  auto session = std::make_shared<SessionState>();
  session->id = next_session_++;
  session->pipeline = runners_.get();
  session->forget = [weak = runners_->weak_from_this(), process = getpid()](std::uint64_t id) {
    if (getpid() != process) return;  // a child made by fork() has no ranks
    if (const auto runners = weak.lock()) runners->post([id](RankRunner& runner) { runner.forget_session(id); });
  };
  sessions_.push_back(session);
  return session;
}

InferResult Inferences::start(const std::shared_ptr<StepJob>& job) {
  std::erase_if(sessions_, [](const auto& session) { return session.expired(); });
  const std::size_t most = std::max(2 * static_cast<std::size_t>(runners_->world().stages()), sessions_.size());
  while (under_way_.size() >= most) finish_oldest();
  const auto& outputs = job->inference->state;
  runners_->start(job);
  under_way_.emplace_back(job->state, outputs->is_sent_here() ? outputs : nullptr);
  return InferResult(job->state, outputs);
}

void Inferences::finish() {
  while (!under_way_.empty()) finish_oldest();
}

void Inferences::finish_oldest() {
  const auto [step, outputs] = std::move(under_way_.front());
  under_way_.pop_front();
  step->finish();
  if (!outputs || step->has_failed()) return;
  try {
    outputs->outputs();
  } catch (const StepFailure&) {
    Failures& failures = *ranks_of(runners_->world()).failures();
    if (failures.is_reported(std::current_exception())) return;
    failures.mark_reported(std::current_exception());
    throw;
  }
}

void Inferences::settle() noexcept {
  for (const auto& [step, outputs] : under_way_) step->settle();
  under_way_.clear();
}

BatchLayout JobFactory::layout_of(std::int64_t samples) const {
  return BatchLayout(
      {.samples = samples, .replicas = world().replicas(), .micro_batches = parts_.options.micro_batches});
}

RowRange JobFactory::share_rows(std::int64_t samples) const {
  if (!is_spread()) return {0, samples};
  return layout_of(samples).share(ranks_of(world()).first().replica());
}

std::int64_t JobFactory::samples_of(const Tensors& inputs) const {
  const int wanted = parts_.runners.staged().graph.inputs;
  require<ConfigError>(static_cast<int>(inputs.size()) == wanted, "the network takes ", wanted, " inputs, not ",
                       inputs.size());
  return parts_.axes.inputs.samples(inputs);
}

void JobFactory::require_targets(const BatchTensors& targets, const std::vector<Metric>& metrics) const {
  if (targets.count() > 0) return;
  const Loss& loss = parts_.loss;
  require<ConfigError>(
      !loss.reads_target(), "the loss '", loss.name,
      "' compares with a target, but this batch has none: pass targets, or give a loss of the outputs alone");
  require<ConfigError>(loss.weight.targets() != TargetUse::first, "the loss '", loss.name,
                       "' weighs a batch by its targets, but this batch has none: leave Loss::weight out, and samples ",
                       "are counted");
  for (const Metric& metric : metrics)
    require<ConfigError>(metric.count.targets() != TargetUse::first, "the metric '", metric.name,
                         "' compares with a target, but this batch has none: leave it out");
}

StepJob JobFactory::begin(const BatchTensors& inputs, const BatchTensors& targets, const std::vector<Metric>& metrics) {
  const std::int64_t samples = parts_.axes.samples(inputs, targets);
  require_targets(targets, metrics);
  std::int64_t first_row = 0;
  if (parts_.runners.read_inputs()) {
    const std::int64_t given = samples_of(inputs.list());
    const RowRange share = share_rows(samples);
    require<ConfigError>(given == samples || given == share.size() || given == 0, "the inputs have ", given,
                         " rows and the batch ", samples, ": pass the whole batch",
                         is_spread() ? ", or its BatchShare" : "");
    if (given != samples) first_row = share.begin;
  }
  Tensors tensors = inputs.list();
  for (const torch::Tensor& target : targets.list()) tensors.push_back(target);
  return {.step = next_step_++,
          .training_step = training_steps_,
          .layout = layout_of(samples),
          .inputs = inputs.list(),
          .first_input_row = first_row,
          .targets = targets.list(),
          .ready = transport::DeviceEvents::of(tensors),
          .metrics = metrics,
          .learning_rate = learning_rate_};
}

std::shared_ptr<StepJob> JobFactory::scheduled(StepJob job) const {
  job.schedules.clear();
  for (Replica replica(0); replica.value() < world().replicas(); replica = replica.next()) {
    const int micro_batches = job.layout.micro_batches(job.share_of(replica));
    job.schedules.push_back(job.training ? parts_.schedules.for_training(micro_batches, job.part)
                                         : parts_.schedules.for_forward(micro_batches));
  }
  return std::make_shared<StepJob>(std::move(job));
}

std::shared_ptr<StepJob> JobFactory::training(const BatchTensors& inputs, const BatchTensors& targets, StepPart part) {
  StepJob job = begin(inputs, targets, {});
  job.part = part;
  ++training_steps_;
  const auto& [samples, replicas, micro_batches] = job.layout.shape();
  const std::int64_t full = std::int64_t{micro_batches} * replicas;
  // Only for the first batch, because a short batch after full ones is the end of an epoch. A batch may also be a
  // little short: it has enough for the replica with the largest share.
  if (std::exchange(is_first_batch_, false) && world().is_main() && samples <= full - replicas)
    warn(say("a batch of ", samples, " samples has fewer than 1 for each of ", micro_batches, " micro-batches on each ",
             "of ", replicas, replicas == 1 ? " replica" : " replicas",
             ": the step runs with fewer micro-batches; pass ", full, " samples or more, or ask for fewer"));
  return scheduled(std::move(job));
}

std::shared_ptr<StepJob> JobFactory::later_part(const StepJob& begun, StepPart part, double gradient_divisor) {
  StepJob job = begun;
  job.part = part;
  job.gradient_divisor = gradient_divisor;
  job.learning_rate = learning_rate_;
  return scheduled(std::move(job));
}

std::shared_ptr<StepJob> JobFactory::evaluation(const BatchTensors& inputs, const BatchTensors& targets,
                                                const std::vector<Metric>& metrics) {
  StepJob job = begin(inputs, targets, metrics);
  job.training = false;
  return scheduled(std::move(job));
}

std::shared_ptr<StepJob> JobFactory::inference(const Tensors& inputs, const InferOptions& options) {
  const std::int64_t rows = samples_of(inputs);
  require<ConfigError>(rows >= 1, "inference needs at least one row, along dimension 0 of the inputs (or that of ",
                       "PipelineOptions::batch_dims)");
  const int most = parts_.options.micro_batches, wanted = options.micro_batches == 0 ? most : options.micro_batches;
  require<ConfigError>(wanted >= 1 && wanted <= most, "inference in ", options.micro_batches,
                       " micro-batches, but the pipeline was made for ", most, ": ask for 1 to ", most);
  if (options.session) join_session(*options.session->state_, rows, options);
  const int sharers = options.replicas == ReplicaInput::each ? 1 : world().replicas();
  StepJob job{.step = next_step_,
              .training = false,
              .layout = BatchLayout({.samples = rows, .replicas = sharers, .micro_batches = wanted}),
              .inputs = inputs,
              .ready = transport::DeviceEvents::of(inputs)};
  job.inference = Inference{.broadcast = options.broadcast,
                            .replicas = options.replicas,
                            .session = options.session ? std::optional(options.session->state_->id) : std::nullopt,
                            .last_position = options.last_position,
                            .state = std::make_shared<InferState>(expected_outputs(next_step_, options))};
  ++next_step_;
  return scheduled(std::move(job));
}

// Every call of a session must split its rows in the same way, because memory is kept per micro-batch.
void JobFactory::join_session(SessionState& session, std::int64_t rows, const InferOptions& options) const {
  require<ConfigError>(session.pipeline == &parts_.runners, "this inference session was opened in another pipeline");
  if (!session.rows) {
    session.rows = rows;
    session.replicas = options.replicas;
    session.micro_batches = options.micro_batches;
  }
  require<ConfigError>(*session.rows == rows, "this inference session has ", *session.rows, " rows, but this call has ",
                       rows, ": restart() it, or open another one");
  require<ConfigError>(session.replicas == options.replicas && session.micro_batches == options.micro_batches,
                       "this inference session was begun with other replicas or micro_batches (", session.micro_batches,
                       ", now ", options.micro_batches, "): restart() it, or open another one");
}

InferState::Expected JobFactory::expected_outputs(std::uint64_t step, const InferOptions& options) const {
  InferState::Expected expected;
  expected.axes = parts_.axes.outputs;
  expected.rank_watch = ranks_of(world()).watch();
  const RankContext context = ranks_of(world()).first();
  const Schedule& schedule = parts_.schedules.training();
  const Rank last = schedule.rank_of(StageId(schedule.stage_count() - 1));
  const bool holds_last = context.is_alone || context.pipeline_rank() == last;
  if (!holds_last && !options.broadcast) {
    const int first = context.rank_of(last, Replica(0)).value(), count = world().replicas();
    expected.not_here = say("the outputs are not on this process: the last stage is on rank ", first,
                            count > 1 ? say(" to ", first + count - 1) : std::string(), ", and this is rank ",
                            context.rank.value(), "; ask has_outputs(), or set InferOptions::broadcast");
    return expected;
  }
  expected.parts = options.replicas == ReplicaInput::each ? 1 : world().replicas();
  if (context.is_alone || (holds_last && expected.parts == 1)) return expected;
  expected.fetch = [weak = parts_.runners.weak_from_this(), step,
                    replicas = options.replicas](std::shared_ptr<InferState> state) {
    if (const auto runners = weak.lock())
      runners->post([state, step, replicas](RankRunner& runner) { runner.fetch_outputs(step, replicas, *state); });
    else
      state->fail(std::make_exception_ptr(
          ConfigError("the pipeline of this inference has been destroyed: read the outputs before that")));
  };
  return expected;
}

double JobFactory::weight_of(const StepJob& job) const {
  if (parts_.options.loss_reduction.reduction == Reduction::sum) return 0;
  return loss_factors(parts_.loss, {.reduction = parts_.options.loss_reduction.reduction},
                      {job.targets, parts_.axes.targets}, job.layout, Replica(0), world().replicas())
      .total_weight;
}

void JobFactory::set_learning_rate(double rate) {
  require<ConfigError>(std::isfinite(rate) && rate >= 0, "learning rate is ", rate,
                       ": pass a finite number, 0 or more");
  learning_rate_ = rate;
}

}  // namespace penstock
