// RankRunner: the rows that a rank reads from its process's batch.
#include "penstock/layers/uncounted.h"
#include "penstock/runtime/compare_batches.h"
#include "penstock/runtime/rank_runner.h"

namespace penstock {

// The result is available after the last F, so that only training steps read their batch later and need copies. A
// tensor that is Whole is copied once for all micro-batches.
torch::Tensor RankRunner::rows_of_batch(BatchPart part, std::size_t index, RowRange rows) {
  const bool is_input = part == BatchPart::inputs;
  const torch::Tensor& all = (is_input ? job_->inputs : job_->targets)[index];
  const torch::Tensor some = (is_input ? setting_.axes.inputs : setting_.axes.targets).rows(all, index, rows);
  const RowsUse use{setting_.device, job_->training};
  if (!some.is_same(all)) return usable_rows(some, use);
  const auto [known, is_new] = whole_.try_emplace({part, index});
  const Uncounted of_no_micro_batch;
  if (is_new) known->second = usable_rows(all, use);
  return known->second;
}

void RankRunner::compare_batches() {
  GivenBatch given{setting_.pipeline, job_->step, job_->training_step, job_->targets, {}};
  const RowRange share = job_->layout.share(replica_);
  given.inputs.resize(job_->inputs.size());
  for (const auto& stage : stages_)
    for (const int input : stage->part().graph_inputs) {
      const auto i = static_cast<std::size_t>(input);
      given.inputs[i] = setting_.axes.inputs.rows(
          job_->inputs[i], i, {share.begin - job_->first_input_row, share.end - job_->first_input_row});
    }
  penstock::compare_batches(context(), given);
}

}  // namespace penstock
