#include "penstock/rank/step_state.h"

#include <unistd.h>

#include <utility>

#include "penstock/base/error.h"

namespace penstock {

void StepState::set_numbers(StepNumbers numbers) {
  {
    std::lock_guard lock(mutex_);
    numbers_ = std::move(numbers);
  }
  changed_.notify_all();
}

void StepState::set_gradient_norm(double norm) {
  {
    std::lock_guard lock(mutex_);
    gradient_norm_ = norm;
  }
  changed_.notify_all();
}

void StepState::set_update_skipped() {
  std::lock_guard lock(mutex_);
  update_skipped_ = true;
}

bool StepState::update_skipped() {
  wait_until_done();
  std::lock_guard lock(mutex_);
  return update_skipped_;
}

void StepState::add_use(const RankUse& use) {
  std::lock_guard lock(mutex_);
  uses_.push_back(use);
}

void StepState::add_outputs(Replica replica, BatchOutputs part, const BatchAxesOf& axes) {
  std::lock_guard lock(mutex_);
  outputs_.emplace(replica, std::move(part));
  axes_ = axes;
}

std::optional<BatchOutputs> StepState::outputs() {
  std::lock_guard lock(mutex_);
  if (outputs_.empty()) return std::nullopt;
  if (outputs_.size() == 1) return outputs_.begin()->second;
  std::vector<std::vector<torch::Tensor>> outputs, targets;
  for (const auto& [replica, part] : outputs_) {
    outputs.push_back(part.outputs);
    targets.push_back(part.targets);
  }
  return BatchOutputs{axes_.outputs.join(outputs),
                      axes_.targets.join(targets),
                      {outputs_.begin()->second.rows.begin, outputs_.rbegin()->second.rows.end}};
}

std::vector<RankUse> StepState::uses() {
  std::lock_guard lock(mutex_);
  return uses_;
}

StepState::StepState(int local_ranks, std::shared_ptr<Failures> failures, std::shared_ptr<const RankWatch> rank_watch)
    : failures_(std::move(failures)), rank_watch_(std::move(rank_watch)), process_(getpid()), running_(local_ranks) {}

void StepState::require_own_process() const {
  require<ConfigError>(getpid() == process_, "this step runs in process ", process_, ", of which this is a child made ",
                       "by fork(): a child has no ranks; make its own world after fork()");
}

void StepState::rank_done(std::exception_ptr error) {
  if (error) failures_->add(error);
  {
    std::lock_guard lock(mutex_);
    --running_;
    if (error && !error_) error_ = error;
  }
  changed_.notify_all();
}

template <class Condition>
void StepState::wait(std::unique_lock<std::mutex>& lock, const Condition& condition) {
  if (condition()) return;
  require_own_process();
  wait_here(lock, condition);
}

// All conditions hold where there is an error.
template <class Condition>
void StepState::wait_here(std::unique_lock<std::mutex>& lock, const Condition& condition) {
  if (const auto failure = rank_watch_->wait(lock, changed_, condition)) {
    failures_->add(failure);
    error_ = failure;
  }
}

void StepState::rethrow() {
  failures_->mark_reported(error_);
  std::rethrow_exception(error_);
}

const StepNumbers& StepState::numbers() {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return numbers_ || error_; });
  if (error_) rethrow();
  return *numbers_;
}

double StepState::gradient_norm() {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return gradient_norm_ || error_ || running_ == 0; });
  if (error_) rethrow();
  require<ConfigError>(gradient_norm_.has_value(),
                       "this step measured no gradient norm: set PipelineOptions::clip_norm (infinity clips nothing)");
  return *gradient_norm_;
}

bool StepState::has_gradient_norm() {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return gradient_norm_ || error_ || running_ == 0; });
  if (error_) std::rethrow_exception(error_);
  return gradient_norm_.has_value();
}

void StepState::wait_until_done() {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return running_ == 0 || error_; });
  if (error_) rethrow();
}

void StepState::finish() {
  std::unique_lock lock(mutex_);
  wait(lock, [&] { return running_ == 0 || error_; });
  if (!error_) return;
  const bool was_told = failures_->is_reported(error_);
  try {
    rethrow();
  } catch (const StepFailure&) {
    if (!was_told) throw;
  }
}

void StepState::settle() noexcept {
  std::unique_lock lock(mutex_);
  if (getpid() == process_) wait_here(lock, [&] { return running_ == 0 || error_; });
}

bool StepState::ready() {
  std::lock_guard lock(mutex_);
  return numbers_ || error_;
}

bool StepState::has_failed() {
  std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

bool StepState::is_done() {
  std::lock_guard lock(mutex_);
  return running_ == 0 || error_;
}

}  // namespace penstock
