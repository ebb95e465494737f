#include "penstock/rank/local_runners.h"

#include <utility>

namespace penstock {

LocalRunners::LocalRunners(World& world, std::uint32_t pipeline, StagedGraph staged)
    : world_(world), pipeline_(pipeline), staged_(std::move(staged)), runners_(world.local_ranks().size()) {}

std::size_t LocalRunners::index_of(WorldRank rank) const {
  return static_cast<std::size_t>(rank.value() - world_.local_ranks().front().value());
}

void LocalRunners::make(const std::function<std::unique_ptr<RankRunner>(const RankContext&)>& make_runner) {
  world_.run_on_local_ranks(
      [&](const RankContext& context) { runners_[index_of(context.rank)] = make_runner(context); });
}

bool LocalRunners::read_inputs() const {
  for (const auto& runner : runners_)
    for (const auto& stage : runner->stages())
      if (!stage->part().graph_inputs.empty()) return true;
  return false;
}

StepResult LocalRunners::start(const std::shared_ptr<StepJob>& job) {
  prepare(*job);
  if (before_last_) before_last_->finish();
  submit(job);
  return StepResult(job->state);
}

void LocalRunners::prepare(StepJob& job) const {
  job.state = std::make_shared<StepState>(count(), world_.failures(), world_.rank_watch());
}

void LocalRunners::submit(const std::shared_ptr<StepJob>& job) {
  before_last_ = std::exchange(last_, job->state);
  post([job](RankRunner& runner) { runner.run(*job); });
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
    world_.post(runner->context().rank, [self = shared_from_this(), work, to = runner.get()] {
      const RankDeviceGuard guard(to->device());
      work(*to);
    });
}

void LocalRunners::run(const Work& work) const {
  world_.run_on_local_ranks([&](const RankContext& context) {
    RankRunner& runner = of(context.rank);
    const RankDeviceGuard guard(runner.device());
    work(runner);
    if (!context.endpoint->aborted()) runner.await_device("work between steps");  // else the state is still read
  });
  synchronize();  // the caller may read the results
}

void LocalRunners::synchronize() const {
  for (const auto& runner : runners_) runner->device().synchronize();
}

}  // namespace penstock
