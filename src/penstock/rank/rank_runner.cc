#include "penstock/rank/rank_runner.h"

#include <memory>
#include <set>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/rank/batch.h"
#include "penstock/rank/gradient_reducer.h"
#include "penstock/rank/job_results.h"
#include "penstock/rank/result.h"
#include "penstock/transport/transport.h"
#include "penstock/world/failures.h"
#include "penstock/world/rank_threads.h"

namespace penstock::rank {
namespace {

/// The pairs of ranks between which tensors of the pipeline travel and of which this rank is one: with the holders of
/// the stages that its own send to or receive from, of the same stages in other replicas, and of the stages that share
/// parameters with its own. Ascending, so that two ranks have their common pairs in one order.
std::vector<RankPair> pairs_of(const StagedGraph& staged, const StagePlacement& placement,
                               const RankStages& own_stages) {
  const WorldRank own = placement.context().rank;
  std::set<WorldRank> others;
  for (const StagePart& part : staged.parts)
    for (const Port& port : part.sends) {
      if (placement.is_local(part.id)) others.insert(placement.holder_of(port.peer));
      if (placement.is_local(port.peer)) others.insert(placement.holder_of(part.id));
    }
  for (const auto& stage : own_stages) {
    for (Replica replica(0); replica.value() < placement.context().replicas; replica = replica.next())
      others.insert(placement.holder_of(stage->id(), replica));
    for (const Stage::Held& held : stage->state())
      for (const ParameterUse& use : held.all_uses.list) others.insert(placement.holder_of(use.stage));
  }
  others.erase(own);
  std::set<RankPair> pairs;
  for (const WorldRank other : others) {
    pairs.insert({own, other});
    pairs.insert({other, own});
  }
  return {pairs.begin(), pairs.end()};
}

}  // namespace

RankRunner::RankRunner(const StagedGraph& staged, const Schedule& training, const RankSetting& setting)
    : setting_(setting),
      device_(setting.device),
      placement_(setting.pipeline, setting.context, training.rank_of_stage),
      micro_batches_(training.micro_batches),
      reducer_(placement_, stages_),
      updater_(placement_, stages_, reducer_, setting_),
      copies_(placement_, stages_),
      clocks_(stages_, device_),
      executor_({staged.graph, setting_, device_, placement_, stages_, reducer_, updater_, clocks_}) {
  const RankDeviceGuard guard(device_);
  for (const StagePart& part : staged.parts) {
    if (!placement_.is_local(part.id)) continue;
    stages_.push_back(
        std::make_unique<Stage>(staged, part, StageSetting{setting.options->seed, setting.device, setting.kernels}));
  }
  placement_.endpoint().connect(
      {setting.pipeline, pairs_of(staged, placement_, stages_), setting.device, setting.options->boundary_shape});
}

std::vector<std::pair<int, bool>> RankRunner::trainable_nodes() const {
  std::vector<std::pair<int, bool>> nodes;
  for (const auto& stage : stages_)
    for (int n : stage->part().nodes) nodes.emplace_back(n, stage->parameter_bytes(n) > 0);
  return nodes;
}

void RankRunner::set_trainable(const Trains& trains) {
  for (const auto& stage : stages_) stage->set_trainable(trains);
  reducer_.clear();
  updater_.add_optimizers();
}

void RankRunner::begin_at(const Restored& restored) {
  if (!restored.has_learning_rate) updater_.reset_learning_rate();
  if (restored.loss_scale) updater_.loss_scaler().load(*restored.loss_scale);
  for (const auto& stage : stages_) stage->gradients().begin_step();  // invalidates casts of the former weights
  has_failed_ = was_refused_ = false;
  last_update_.reset();
}

void RankRunner::run(const StepJob& job) {
  if (job.require_previous && was_refused_ && !permanent_error_) {
    const auto left_out = std::make_exception_ptr(
        StepFailure(say("step ", job.step, " was not run, because the step before it was refused")));
    job.state->mark_reported(left_out);  // it is what the program asked for
    return job.state->rank_done(left_out);
  }
  const RankDeviceGuard guard(device_);
  if (permanent_error_) return end(job, permanent_error_);
  job_ = &job;
  std::exception_ptr error;
  try {
    const bool is_later = job.is_later_part();
    copies_.keep_buffers(job);
    executor_.begin(job);
    if (!is_later) copies_.share_buffers(job);
    reducer_.begin(job);
    updater_.begin(job);
    // Traces contain only steps of the full schedule, because others are not comparable with it.
    const int micro_batches = job.schedule_of(placement_.replica()).schedule.micro_batches;
    const bool is_traced = job.training && !is_later && micro_batches == micro_batches_;
    Recorder& recorder = is_traced ? recorder_ : untraced_;
    recorder.begin_step(job.step);
    {
      const torch::AutoGradMode with_graph(job.training);
      if (device_.stream())
        executor_.run_on_device(recorder);
      else
        execute(executor_.program(), executor_, recorder);
    }
    recorder.end_step();
    if (job.part == StepPart::reduce) {
      reducer_.finish_ties();
      if (job.gradient_divisor != 1) reducer_.divide(job.gradient_divisor);
      await_device("the reduced gradients");
    }
    const bool updates = job.training && (job.part == StepPart::whole || job.part == StepPart::update);
    if (updates && updater_.end_update()) last_update_ = job.training_step;
    if (const BusyTime& busy = recorder.newest_busy(); job.training && !is_later)
      job.state->add_use({busy.begin_ns, busy.end_ns, busy.busy_ns, executor_.peak_activations()});
    if (!is_later) executor_.end();
  } catch (...) {
    error = std::current_exception();
  }
  end(job, error);
}

void RankRunner::end(const StepJob& job, const std::exception_ptr& error) {
  const bool is_own = error && error != permanent_error_;
  std::exception_ptr failure =
      is_own ? failed(error, say(to_string(executor_.current()), " of step ", job.step)) : error;
  if (failure && job.inference) job.inference->state->fail(failure);
  job_ = nullptr;
  executor_.clear(failure != nullptr);
  // Gradients are kept for the next part of the step.
  const bool keeps_gradients = job.part == StepPart::forward_backward || job.part == StepPart::reduce;
  if (failure || (job.training && !keeps_gradients)) reducer_.clear();
  if (is_own && job.refuses_invalid_loss) failure = explained(job, failure, error);
  if (job.training) {
    was_refused_ = failure && job.refuses_invalid_loss;
    has_failed_ = failure && !is_invalid_loss(failure);
  }
  job.state->rank_done(failure);
}

std::exception_ptr RankRunner::explained(const StepJob& job, const std::exception_ptr& failure,
                                         const std::exception_ptr& own) {
  try {
    std::rethrow_exception(failure);
  } catch (const StepFailure&) {
  } catch (...) {
    return failure;  // the world has ended
  }
  try {
    const auto invalid = agreed_invalid_loss(placement_, stages_, setting_, job, own, last_update_);
    return invalid ? invalid : failure;
  } catch (...) {
    return failed(std::current_exception(), say("the agreement on the invalid loss of step ", job.step));
  }
}

void RankRunner::await_device(const std::string& what) const {
  if (device_.stream()) placement_.endpoint().await_stream(*device_.stream(), what);
}

void RankRunner::fetch_outputs(std::uint64_t step, ReplicaInput replicas, InferState& state) {
  try {
    executor_.results().receive_outputs(step, replicas, state);
  } catch (...) {
    state.fail(failed(std::current_exception(), say("the outputs of step ", step)));
  }
}

// Cancels the step on every rank if no parameter can have been updated; otherwise aborts the world. An error that every
// rank throws needs neither.
std::exception_ptr RankRunner::failed(const std::exception_ptr& error, const std::string& doing) {
  Transport& transport = placement_.endpoint();
  const std::string reason = say("rank ", context().rank.value(), " (stage ", executor_.current().stage().value(),
                                 ") failed at ", doing, ": ", reason_of(error));
  try {
    std::rethrow_exception(error);
  } catch (const BatchesDiffer& differ) {
    return permanent_error_ = std::make_exception_ptr(ConfigError(differ.what()));
  } catch (const PipelineCancelled& cancelled) {
    return std::make_exception_ptr(RankFailure(cancelled.what()));
  } catch (const StepCancelled& cancelled) {
    if (job_ && job_->training) copies_.restore_buffers();
    return std::make_exception_ptr(StepFailure(cancelled.what()));
  } catch (const TransportError&) {
  } catch (...) {
    if (job_ && is_harmless(*job_) && transport.can_cancel() && !transport.aborted()) {
      transport.cancel({setting_.pipeline, job_->step}, reason);
      if (job_->training) copies_.restore_buffers();
      return std::make_exception_ptr(StepFailure(reason));
    }
  }
  if (!transport.aborted()) transport.abort(reason);
  return std::make_exception_ptr(RankFailure(transport.aborted().value_or(reason)));
}

// While a rank has forwards left, no stage of any rank can have complete gradients or updated parameters.
bool RankRunner::is_harmless(const StepJob& job) const {
  if (job.part != StepPart::whole) return false;
  if (job.inference && job.inference->session) return false;  // layers may have stored a part of the sequence
  return !job.training || executor_.has_forwards_left();
}

LocalRunners::LocalRunners(World& world, std::uint32_t pipeline, StagedGraph staged)
    : world_(world), pipeline_(pipeline), staged_(std::move(staged)), runners_(ranks_of(world).local_ranks().size()) {}

std::size_t LocalRunners::index_of(WorldRank rank) const {
  return static_cast<std::size_t>(rank.value() - world_.rank());
}

void LocalRunners::make(const std::function<std::unique_ptr<RankRunner>(const RankContext&)>& make_runner) {
  ranks_of(world_).run_on_local_ranks(
      [&](const RankContext& context) { runners_[index_of(context.rank)] = make_runner(context); });
}

bool LocalRunners::read_inputs() const {
  for (const auto& runner : runners_)
    for (const auto& stage : runner->stages())
      if (!stage->part().graph_inputs.empty()) return true;
  return false;
}

StepResult LocalRunners::start(const std::shared_ptr<StepJob>& job) {
  job->state = std::make_shared<StepState>(count(), ranks_of(world_).failures(), ranks_of(world_).watch());
  if (!job->inference && before_last_) before_last_->finish();
  before_last_ = std::exchange(last_, job->state);
  for (const auto& runner : runners_)
    ranks_of(world_).post(runner->context().rank,
                          [self = shared_from_this(), job, to = runner.get()] { to->run(*job); });
  return StepResult(job->state);
}

void LocalRunners::finish() const {
  if (before_last_) before_last_->finish();
  if (last_) last_->finish();
}

void LocalRunners::settle() const noexcept {
  if (before_last_) before_last_->settle();
  if (last_) last_->settle();
}

void LocalRunners::post(const Work& work) {
  for (const auto& runner : runners_)
    ranks_of(world_).post(runner->context().rank, [self = shared_from_this(), work, to = runner.get()] {
      const RankDeviceGuard guard(to->device());
      work(*to);
    });
}

void LocalRunners::run(const Work& work) const {
  ranks_of(world_).run_on_local_ranks([&](const RankContext& context) {
    RankRunner& runner = *runners_[index_of(context.rank)];
    const RankDeviceGuard guard(runner.device());
    work(runner);
    if (!context.endpoint->aborted()) runner.await_device("work between steps");  // else the state is still read
  });
  for (const auto& runner : runners_) runner->device().synchronize();  // the caller may read the results
}

}  // namespace penstock::rank
