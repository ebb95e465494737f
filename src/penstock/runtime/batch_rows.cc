#include "penstock/runtime/batch_rows.h"

#include <set>
#include <string>

#include "penstock/base/device_copy.h"
#include "penstock/base/error.h"
#include "penstock/layers/uncounted.h"
#include "penstock/runtime/compare_batches.h"

namespace penstock {

namespace {

/// "float [2, 3]".
std::string text_of(const torch::Tensor& rows) {
  return rows.defined() ? say(rows.dtype().name(), " ", rows.sizes()) : "nothing";
}

/// The first row of `some`; that of tensors that are Whole, and have no rows, is -1.
std::int64_t first_row(const torch::Tensor& some, const torch::Tensor& all, RowRange rows) {
  return some.is_same(all) ? -1 : rows.begin;
}

}  // namespace

void BatchRows::clear() {
  job_ = nullptr;
  fixed_ = nullptr;
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

torch::Tensor BatchRows::rows_of(Kind kind, std::size_t index, RowRange rows) const {
  return (kind == Kind::inputs ? axes_.inputs : axes_.targets).rows(tensors(kind)[index], index, rows);
}

void BatchRows::fix(FixedRows& fixed, const RankStages& stages) {
  std::set<FixedRows::key_type> done;  // tensors that are Whole, and those that two stages read, come again
  const auto fix_once = [&](Kind kind, std::size_t index, RowRange rows) {
    const torch::Tensor some = rows_of(kind, index, rows);
    const FixedRows::key_type key{kind, index, first_row(some, tensors(kind)[index], rows)};
    if (done.insert(key).second) fix_rows(fixed[key], key, some);
  };
  for (MicroBatch i(0); i.value() < micro_batches(); i = i.next())
    for (const auto& stage : stages) {
      for (const int input : stage->part().graph_inputs)
        fix_once(Kind::inputs, static_cast<std::size_t>(input), input_rows(of(i)));
      if (stage->id() != placement_.last_stage()) continue;
      for (std::size_t target = 0; target < job_->targets.size(); ++target) fix_once(Kind::targets, target, of(i));
    }
  fixed_ = &fixed;
}

void BatchRows::fix_rows(torch::Tensor& memory, const FixedRows::key_type& key, const torch::Tensor& rows) const {
  if (!memory.defined() && rows.defined()) memory = torch::empty_like(rows, rows.options().device(device_));
  if (!memory.defined()) return;
  require<ConfigError>(rows.defined() && memory.sizes() == rows.sizes() && memory.dtype() == rows.dtype(),
                       std::get<Kind>(key) == Kind::inputs ? "input " : "target ", std::get<std::size_t>(key), " of ",
                       job_->layout.samples(), " samples is ", text_of(rows), " and was ", text_of(memory),
                       " when the step was captured: leave out capture_steps (--capture-steps) where equal batches ",
                       "have tensors of different shapes");
  const torch::NoGradGuard no_grad;
  copy_to_device(memory, rows);
}

// The result is available after the last F, so that only training steps read their batch later and need copies. A
// tensor that is Whole is copied once for all micro-batches.
torch::Tensor BatchRows::usable(Kind kind, std::size_t index, RowRange rows) {
  const torch::Tensor& all = tensors(kind)[index];
  const torch::Tensor some = rows_of(kind, index, rows);
  if (fixed_) return fixed_->at({kind, index, first_row(some, all, rows)});
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
