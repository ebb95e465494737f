#include "penstock/rank/job.h"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/text.h"
#include "penstock/layers/thread_scopes.h"

namespace penstock::rank {

StepState::StepState(int local_ranks, std::shared_ptr<Failures> failures, std::shared_ptr<const RankWatch> rank_watch)
    : failures_(std::move(failures)), rank_watch_(std::move(rank_watch)), process_(getpid()), running_(local_ranks) {}

void StepState::set_numbers(StepNumbers numbers) {
  const std::lock_guard lock(mutex_);
  numbers_ = std::move(numbers);
  changed_.notify_all();
}

void StepState::set_gradient_norm(double norm) {
  const std::lock_guard lock(mutex_);
  gradient_norm_ = norm;
  changed_.notify_all();
}

void StepState::set_update_skipped() {
  const std::lock_guard lock(mutex_);
  update_skipped_ = true;
}

void StepState::add_use(const RankUse& use) {
  const std::lock_guard lock(mutex_);
  uses_.push_back(use);
}

void StepState::add_outputs(Replica replica, BatchOutputs part, const BatchAxesOf& axes) {
  const std::lock_guard lock(mutex_);
  outputs_.emplace(replica, std::move(part));
  axes_ = axes;
}

void StepState::rank_done(std::exception_ptr error) {
  if (error) failures_->add(error);
  const std::lock_guard lock(mutex_);
  --running_;
  if (error && !error_) error_ = error;
  changed_.notify_all();
}

void StepState::require_own_process() const {
  require<ConfigError>(getpid() == process_, "this step runs in process ", process_, ", of which this is a child made ",
                       "by fork(): a child has no ranks; make its own world after fork()");
}

template <class Condition>
std::unique_lock<std::mutex> StepState::ended(const Condition& condition) {
  std::unique_lock lock(mutex_);
  const auto is_over = [&] { return condition() || error_; };
  if (is_over()) return lock;
  require_own_process();
  if (const auto failure = rank_watch_->wait(lock, changed_, is_over)) {
    failures_->add(failure);
    error_ = failure;
  }
  return lock;
}

template <class Condition>
std::unique_lock<std::mutex> StepState::awaited(const Condition& condition) {
  std::unique_lock lock = ended(condition);
  if (!error_) return lock;
  failures_->mark_reported(error_);
  std::rethrow_exception(error_);
}

std::unique_lock<std::mutex> StepState::wait_until_done() {
  return awaited([this] { return running_ == 0; });
}

void StepState::finish() {
  const auto lock = ended([this] { return running_ == 0; });
  if (!error_) return;
  const bool was_told = failures_->is_reported(error_);
  failures_->mark_reported(error_);
  try {
    std::rethrow_exception(error_);
  } catch (const StepFailure&) {
    if (!was_told) throw;
  }
}

void StepState::settle() noexcept {
  if (getpid() == process_) ended([this] { return running_ == 0; });
}

bool StepState::has_failed() {
  const std::lock_guard lock(mutex_);
  return error_ != nullptr;
}

bool StepState::is_done() {
  const std::lock_guard lock(mutex_);
  return running_ == 0 || error_;
}

const StepNumbers& StepState::numbers() {
  const auto lock = awaited([this] { return numbers_.has_value(); });
  return *numbers_;
}

void InferState::add_part(Replica replica, Tensors outputs) {
  const std::lock_guard lock(mutex_);
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
  changed_.notify_all();
}

void InferState::fail(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = error;
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
  const layers::Uncounted of_no_micro_batch;
  if (is_new) known->second = usable_rows(all, use);
  return known->second;
}

void BatchRows::compare(const RankStages& stages) const {
  const std::string targets = listed(job_->targets, ", ", digest_of);
  std::vector<std::string> digests(1 + job_->inputs.size());
  digests[0] = targets.empty() ? "none" : targets;
  for (const auto& stage : stages)
    for (const int input : stage->part().graph_inputs) {
      const auto i = static_cast<std::size_t>(input);
      digests[1 + i] = digest_of(axes_.inputs.rows(job_->inputs[i], i, input_rows(job_->layout.share(share()))));
    }
  compare_digests(placement_.context(), control_tag(placement_.pipeline(), Topic::batches, job_->step), digests,
                  job_->training_step);
}

}  // namespace penstock::rank

namespace penstock {

double StepResult::loss() const { return state_->numbers().loss; }
double StepResult::loss_sum() const { return state_->numbers().loss_sum; }
double StepResult::weight() const { return state_->numbers().weight; }
const std::vector<double>& StepResult::metrics() const { return state_->numbers().metrics; }

double StepResult::gradient_norm() const {
  const auto lock = state_->awaited([this] { return state_->gradient_norm_ || state_->running_ == 0; });
  require<ConfigError>(state_->gradient_norm_.has_value(),
                       "this step measured no gradient norm: set PipelineOptions::clip_norm (infinity clips nothing)");
  return *state_->gradient_norm_;
}

bool StepResult::has_gradient_norm() const {
  const auto lock = state_->ended([this] { return state_->gradient_norm_ || state_->running_ == 0; });
  if (state_->error_) std::rethrow_exception(state_->error_);
  return state_->gradient_norm_.has_value();
}

bool StepResult::update_skipped() const {
  const auto lock = state_->wait_until_done();
  return state_->update_skipped_;
}

bool StepResult::ready() const {
  const std::lock_guard lock(state_->mutex_);
  return state_->numbers_ || state_->error_;
}

void StepResult::wait() const { state_->wait_until_done(); }

std::optional<BatchOutputs> StepResult::outputs() const {
  const auto lock = state_->wait_until_done();
  const auto& parts = state_->outputs_;
  if (parts.empty()) return std::nullopt;
  if (parts.size() == 1) return parts.begin()->second;
  std::vector<Tensors> outputs, targets;
  for (const auto& [replica, part] : parts) {
    outputs.push_back(part.outputs);
    targets.push_back(part.targets);
  }
  return BatchOutputs{state_->axes_.outputs.join(outputs),
                      state_->axes_.targets.join(targets),
                      {parts.begin()->second.rows.begin, parts.rbegin()->second.rows.end}};
}

StepStats StepResult::use() const {
  const auto lock = state_->wait_until_done();
  StepStats total;
  std::int64_t begin = std::numeric_limits<std::int64_t>::max(), end = 0, busy = 0;
  const std::vector<rank::RankUse>& uses = state_->uses_;
  for (const rank::RankUse& use : uses) {
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

}  // namespace penstock
