#include "penstock/rank/job.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/layers/thread_scopes.h"

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

double StepResult::loss() const { return state_->numbers().loss; }
double StepResult::gradient_norm() const { return state_->gradient_norm(); }
bool StepResult::update_skipped() const { return state_->update_skipped(); }
bool StepResult::has_gradient_norm() const { return state_->has_gradient_norm(); }
double StepResult::loss_sum() const { return state_->numbers().loss_sum; }
double StepResult::weight() const { return state_->numbers().weight; }
const std::vector<double>& StepResult::metrics() const { return state_->numbers().metrics; }
bool StepResult::ready() const { return state_->ready(); }
std::optional<BatchOutputs> StepResult::outputs() const {
  state_->wait_until_done();
  return state_->outputs();
}
void StepResult::wait() const { state_->wait_until_done(); }

StepStats StepResult::use() const {
  state_->wait_until_done();
  StepStats total;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0, busy = 0;
  const std::vector<RankUse> uses = state_->uses();
  for (const RankUse& use : uses) {
    total.peak_activations = std::max(total.peak_activations, use.peak_activations);
    busy += use.busy_ns;
    if (use.busy_ns == 0) continue;  // a rank without instructions is idle all the time
    begin = std::min(begin, use.begin_ns);
    end = std::max(end, use.end_ns);
  }
  if (busy > 0)
    total.idle = 1 - static_cast<double>(busy) / (static_cast<double>(end - begin) * static_cast<double>(uses.size()));
  return total;
}

void InferState::add_part(Replica replica, Tensors outputs) {
  {
    std::lock_guard lock(mutex_);
    parts_.emplace(replica, std::move(outputs));
    if (static_cast<int>(parts_.size()) < expected_.parts) return;
    if (parts_.size() == 1) {
      outputs_ = std::move(parts_.begin()->second);
    } else {
      std::vector<Tensors> in_order;
      for (auto& [from, part] : parts_) in_order.push_back(std::move(part));
      outputs_ = expected_.axes.join(in_order);
    }
    parts_.clear();
  }
  changed_.notify_all();
}

void InferState::fail(std::exception_ptr error) {
  {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  changed_.notify_all();
}

void InferState::fetch() {
  std::function<void(std::shared_ptr<InferState>)> fetch;
  {
    std::lock_guard lock(mutex_);
    fetch = std::exchange(expected_.fetch, nullptr);
  }
  if (fetch) fetch(shared_from_this());
}

const Tensors& InferState::outputs() {
  fetch();
  std::unique_lock lock(mutex_);
  if (const auto failure = expected_.rank_watch->wait(lock, changed_, [&] { return outputs_ || error_; }))
    error_ = failure;
  if (error_) std::rethrow_exception(error_);
  return *outputs_;
}

bool InferState::ready() {
  fetch();
  std::lock_guard lock(mutex_);
  return outputs_ || error_;
}

CompiledSchedule::CompiledSchedule(Schedule lowered, Links of_model)
    : schedule(std::move(lowered)), links(std::move(of_model)), dependencies(schedule, links) {
  for (const Order& order : schedule.orders) programs.emplace_back(order, dependencies);
}

void BatchRows::clear() {
  job_ = nullptr;
  whole_.clear();
}

Replica BatchRows::share() const {
  return job_->inference && job_->inference->replicas == ReplicaInput::each ? Replica(0) : placement_.replica();
}

RowRange BatchRows::of(MicroBatch micro_batch) const { return job_->layout.rows(share(), micro_batch); }

RowRange BatchRows::input_rows(RowRange rows) const {
  return {rows.begin - job_->first_input_row, rows.end - job_->first_input_row};
}

Tensors BatchRows::inputs(const StagePart& stage, MicroBatch micro_batch) {
  Tensors inputs;
  for (const int input : stage.graph_inputs)
    inputs.push_back(usable(Kind::inputs, static_cast<std::size_t>(input), input_rows(of(micro_batch))));
  return inputs;
}

Tensors BatchRows::targets(MicroBatch micro_batch) {
  Tensors targets;
  for (std::size_t i = 0; i < job_->targets.size(); ++i) targets.push_back(usable(Kind::targets, i, of(micro_batch)));
  return targets;
}

// The result is available after the last F, so that only training steps read their batch later and need copies. A
// tensor without samples is copied once for all micro-batches.
torch::Tensor BatchRows::usable(Kind kind, std::size_t index, RowRange rows) {
  const bool is_input = kind == Kind::inputs;
  const torch::Tensor& all = (is_input ? job_->inputs : job_->targets)[index];
  const torch::Tensor some = (is_input ? axes_.inputs : axes_.targets).rows(all, index, rows);
  const RowsUse use{device_, job_->training};
  if (!some.is_same(all)) return usable_rows(some, use);
  const auto [known, is_new] = whole_.try_emplace({kind, index});
  const Uncounted of_no_micro_batch;
  if (is_new) known->second = usable_rows(all, use);
  return known->second;
}

void BatchRows::compare(const RankStages& stages) const {
  GivenBatch given{placement_.pipeline(), job_->step, job_->training_step, job_->targets, {}};
  given.inputs.resize(job_->inputs.size());
  for (const auto& stage : stages)
    for (const int input : stage->part().graph_inputs) {
      const auto i = static_cast<std::size_t>(input);
      given.inputs[i] = axes_.inputs.rows(job_->inputs[i], i, input_rows(job_->layout.share(share())));
    }
  compare_batches(placement_.context(), given);
}

}  // namespace penstock
