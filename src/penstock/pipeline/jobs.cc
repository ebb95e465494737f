#include "penstock/pipeline/jobs.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/transport/device_hand_over.h"
#include "penstock/world/rank_threads.h"

namespace penstock {

void StepParts::update_every(int calls) {
  require_whole_steps("update_every");
  require<ConfigError>(calls >= 1, "an update every ", calls, " calls: give at least 1");
  calls_per_update_ = calls;
}

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
  session->pipeline = this;
  session->forget = [weak = runners_->weak_from_this(), process = getpid()](std::uint64_t id) {
    if (getpid() != process) return;  // a child made by fork() has no ranks
    if (const auto runners = weak.lock()) runners->post([id](RankRunner& runner) { runner.forget_session(id); });
  };
  sessions_.push_back(session);
  return session;
}

StepJob Inferences::make_job(std::uint64_t step, const Tensors& inputs, const InferOptions& options) const {
  const std::int64_t rows = rows_of(inputs);
  const int wanted = options.micro_batches == 0 ? setting_.micro_batches : options.micro_batches;
  require<ConfigError>(wanted >= 1 && wanted <= setting_.micro_batches, "inference in ", options.micro_batches,
                       " micro-batches, but the pipeline was made for ", setting_.micro_batches, ": ask for 1 to ",
                       setting_.micro_batches);
  if (options.session) join_session(*options.session->state_, rows, options);
  const int sharers = options.replicas == ReplicaInput::each ? 1 : world().replicas();
  StepJob job{.step = step,
              .training = false,
              .layout = BatchLayout({.samples = rows, .replicas = sharers, .micro_batches = wanted}),
              .inputs = inputs,
              .ready = DeviceEvents::of(inputs)};
  job.inference = Inference{options.broadcast, options.replicas, std::nullopt,
                            std::make_shared<InferState>(expected_outputs(step, options))};
  if (options.session) job.inference->session = options.session->state_->id;
  return job;
}

int Inferences::micro_batches(const StepJob& job, Replica replica) const {
  return job.layout.micro_batches(job.inference->replicas == ReplicaInput::each ? Replica(0) : replica);
}

InferResult Inferences::start(const std::shared_ptr<StepJob>& job) {
  std::erase_if(sessions_, [](const auto& session) { return session.expired(); });
  const std::size_t most = std::max(2 * static_cast<std::size_t>(world().stages()), sessions_.size());
  while (under_way_.size() >= most) finish_oldest();
  const auto& outputs = job->inference->state;
  runners_->start(job);
  under_way_.emplace_back(job->state, outputs->is_sent_here() ? outputs : nullptr);
  return InferResult(job->state, outputs);
}

void Inferences::finish() {
  while (!under_way_.empty()) finish_oldest();
}

std::int64_t Inferences::rows_of(const Tensors& inputs) const {
  require<ConfigError>(static_cast<int>(inputs.size()) == setting_.inputs, "the network takes ", setting_.inputs,
                       " inputs, not ", inputs.size());
  const std::int64_t rows = setting_.axes.inputs.samples(inputs);
  require<ConfigError>(rows >= 1, "inference needs at least one row, along dimension 0 of the inputs (or that of ",
                       "PipelineOptions::batch_dims)");
  return rows;
}

// Every call of a session must split its rows in the same way, because memory is kept per micro-batch.
void Inferences::join_session(SessionState& session, std::int64_t rows, const InferOptions& options) const {
  require<ConfigError>(session.pipeline == this, "this inference session was opened in another pipeline");
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

InferState::Expected Inferences::expected_outputs(std::uint64_t step, const InferOptions& options) const {
  InferState::Expected expected;
  expected.axes = setting_.axes.outputs;
  expected.rank_watch = ranks_of(world()).watch();
  const RankContext context = ranks_of(world()).first();
  const bool holds_last = context.is_alone || context.pipeline_rank() == setting_.last;
  if (!holds_last && !options.broadcast) {
    const int first = context.rank_of(setting_.last, Replica(0)).value(), count = world().replicas();
    expected.not_here = say("the outputs are not on this process: the last stage is on rank ", first,
                            count > 1 ? say(" to ", first + count - 1) : std::string(), ", and this is rank ",
                            context.rank.value(), "; ask has_outputs(), or set InferOptions::broadcast");
    return expected;
  }
  expected.parts = options.replicas == ReplicaInput::each ? 1 : world().replicas();
  if (context.is_alone || (holds_last && expected.parts == 1)) return expected;
  expected.fetch = [weak = runners_->weak_from_this(), step,
                    replicas = options.replicas](std::shared_ptr<InferState> state) {
    if (const auto runners = weak.lock())
      runners->post([state, step, replicas](RankRunner& runner) { runner.fetch_outputs(step, replicas, *state); });
    else
      state->fail(std::make_exception_ptr(
          ConfigError("the pipeline of this inference has been destroyed: read the outputs before that")));
  };
  return expected;
}

void Inferences::finish_oldest() {
  const auto [step, outputs] = std::move(under_way_.front());
  under_way_.pop_front();
  step->finish();
  if (!outputs || step->has_failed()) return;
  try {
    outputs->outputs();
  } catch (const StepFailure&) {
    if (ranks_of(world()).failures()->is_reported(std::current_exception())) return;
    ranks_of(world()).failures()->mark_reported(std::current_exception());
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

StepJob JobFactory::begin(const BatchTensors& inputs, const BatchTensors& targets, const std::vector<Metric>& metrics) {
  const std::int64_t samples = parts_.axes.samples(inputs, targets);
  require_targets(parts_.loss, metrics, targets);
  std::int64_t first_row = 0;
  if (parts_.runners.read_inputs())
    first_row = first_row_of(parts_.axes.inputs, inputs.list(),
                             {parts_.runners.staged().graph.inputs, samples, share_rows(samples), is_spread()});
  Tensors tensors = inputs.list();
  for (const torch::Tensor& target : targets.list()) tensors.push_back(target);
  return {.step = next_step_++,
          .training_step = training_steps_,
          .layout = layout_of(samples),
          .inputs = inputs.list(),
          .first_input_row = first_row,
          .targets = targets.list(),
          .ready = DeviceEvents::of(tensors),
          .metrics = metrics,
          .learning_rate = learning_rate_};
}

std::shared_ptr<StepJob> JobFactory::training(const BatchTensors& inputs, const BatchTensors& targets, StepPart part) {
  auto job = std::make_shared<StepJob>(begin(inputs, targets, {}));
  job->part = part;
  ++training_steps_;
  if (std::exchange(is_first_batch_, false) && world().is_main()) warn_of_few_samples(job->layout);
  for (int r = 0; r < world().replicas(); ++r)
    job->schedules.push_back(parts_.schedules.for_training(job->layout.micro_batches(Replica(r)), part));
  return job;
}

std::shared_ptr<StepJob> JobFactory::later_part(const StepJob& begun, StepPart part, double gradient_divisor) {
  auto job = std::make_shared<StepJob>(begun);
  job->part = part;
  job->gradient_divisor = gradient_divisor;
  job->learning_rate = learning_rate_;
  for (int r = 0; r < world().replicas(); ++r)
    job->schedules[static_cast<std::size_t>(r)] =
        parts_.schedules.for_training(job->layout.micro_batches(Replica(r)), part);
  return job;
}

std::shared_ptr<StepJob> JobFactory::evaluation(const BatchTensors& inputs, const BatchTensors& targets,
                                                const std::vector<Metric>& metrics) {
  auto job = std::make_shared<StepJob>(begin(inputs, targets, metrics));
  job->training = false;
  for (int r = 0; r < world().replicas(); ++r)
    job->schedules.push_back(parts_.schedules.for_forward(job->layout.micro_batches(Replica(r))));
  return job;
}

std::shared_ptr<StepJob> JobFactory::inference(Inferences& inferences, const Tensors& inputs,
                                               const InferOptions& options) {
  auto job = std::make_shared<StepJob>(inferences.make_job(next_step_, inputs, options));
  ++next_step_;
  for (int r = 0; r < world().replicas(); ++r)
    job->schedules.push_back(parts_.schedules.for_forward(inferences.micro_batches(*job, Replica(r))));
  return job;
}

double JobFactory::weight_of(const StepJob& job) const {
  if (parts_.options.loss_reduction.reduction == Reduction::sum) return 0;
  return loss_factors(parts_.loss, {.reduction = parts_.options.loss_reduction.reduction},
                      {job.targets, parts_.axes.targets}, job.layout, Replica(0), world().replicas())
      .total_weight;
}

void JobFactory::set_learning_rate(double rate) {
  require<ConfigError>(std::isfinite(rate) && rate >= 0, "learning rate is ", rate,
                       ": give a finite number, 0 or more");
  learning_rate_ = rate;
}

}  // namespace penstock
