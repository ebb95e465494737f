#include "penstock/runtime/step_queue.h"

#include <utility>

namespace penstock {

StepResult StepQueue::start(const std::shared_ptr<StepJob>& job) {
  prepare(*job);
  if (before_last_) before_last_->finish();
  post(job);
  return StepResult(job->state);
}

void StepQueue::prepare(StepJob& job) const {
  const World& world = runners_->world();
  job.state = std::make_shared<StepState>(runners_->count(), world.failures(), world.rank_watch());
}

void StepQueue::post(const std::shared_ptr<StepJob>& job) {
  before_last_ = std::exchange(last_, job->state);
  runners_->post([job](RankRunner& runner) { runner.run(*job); });
}

void StepQueue::finish() const {
  if (before_last_) before_last_->finish();
  if (last_) last_->finish();
}

void StepQueue::settle() const noexcept {
  if (before_last_) before_last_->settle();
  if (last_) last_->settle();
}

}  // namespace penstock
