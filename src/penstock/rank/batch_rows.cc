#include "penstock/rank/batch_rows.h"

#include "penstock/layers/thread_scopes.h"
#include "penstock/rank/compare_batches.h"

namespace penstock {

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
