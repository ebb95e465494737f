#include "penstock/runtime/result.h"

#include "penstock/base/error.h"
#include "penstock/runtime/step_state.h"

namespace penstock {

const Metric correct = correct_along(1);

Metric correct_along(int class_dimension) {
  return {"correct", [class_dimension](const torch::Tensor& output, const torch::Tensor& target) {
            return static_cast<double>(output.argmax(class_dimension).eq(target).sum().item<std::int64_t>());
          }};
}

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

void StepState::rank_done(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    --running_;
    if (error && !error_) error_ = error;
  }
  changed_.notify_all();
}

const StepNumbers& StepState::numbers() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return numbers_ || error_; });
  if (error_) std::rethrow_exception(error_);
  return *numbers_;
}

double StepState::gradient_norm() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return gradient_norm_ || error_ || running_ == 0; });
  if (error_) std::rethrow_exception(error_);
  require<ConfigError>(gradient_norm_.has_value(),
                       "this step measured no gradient norm: give PipelineOptions::clip_norm (infinity clips nothing)");
  return *gradient_norm_;
}

void StepState::wait_until_done() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0 || error_; });
  if (error_) std::rethrow_exception(error_);
}

bool StepState::ready() {
  std::lock_guard lock(mutex_);
  return numbers_ || error_;
}

bool StepState::is_done() {
  std::lock_guard lock(mutex_);
  return running_ == 0 || error_;
}

double StepResult::loss() const { return state_->numbers().loss; }
double StepResult::gradient_norm() const { return state_->gradient_norm(); }
double StepResult::loss_sum() const { return state_->numbers().loss_sum; }
double StepResult::weight() const { return state_->numbers().weight; }
const std::vector<double>& StepResult::metrics() const { return state_->numbers().metrics; }
bool StepResult::ready() const { return state_->ready(); }
void StepResult::wait() const { state_->wait_until_done(); }

}  // namespace penstock
