// The rows of a job's batch that one rank reads, on the rank's device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "penstock/rank/batch_axes.h"
#include "penstock/rank/stage.h"
#include "penstock/rank/stage_placement.h"
#include "penstock/rank/step_job.h"

namespace penstock {

/// Used on its rank's thread.
class BatchRows {
 public:
  /// `placement` and `axes` must outlive it.
  BatchRows(const StagePlacement& placement, const BatchAxesOf& axes, c10::Device device)
      : placement_(placement), axes_(axes), device_(device) {}

  /// Uses the batch of `job`, which must live until clear().
  void begin(const StepJob& job) { job_ = &job; }
  void clear();

  /// The rows of a micro-batch within the whole batch.
  RowRange of(MicroBatch micro_batch) const;
  /// The number of micro-batches that this rank's replica computes.
  int micro_batches() const { return job_->layout.micro_batches(share()); }
  /// The inputs that `stage` reads: one tensor per stage.graph_inputs.
  Tensors inputs(const StagePart& stage, MicroBatch micro_batch);
  Tensors targets(MicroBatch micro_batch);

  /// Compares the batch with those of the other ranks (compare_batches.h). Collective; throws BatchesDiffer on every
  /// rank.
  void compare(const RankStages& stages) const;

 private:
  enum class Kind { inputs, targets };

  /// The replica whose share of the batch this rank computes.
  Replica share() const;
  /// `rows` counted from the first row that the job has of its inputs.
  RowRange input_rows(RowRange rows) const;
  torch::Tensor usable(Kind kind, std::size_t index, RowRange rows);

  const StagePlacement& placement_;
  const BatchAxesOf& axes_;
  c10::Device device_;
  const StepJob* job_ = nullptr;
  std::map<std::pair<Kind, std::size_t>, torch::Tensor> whole_;  // tensors without samples, on the device
};

}  // namespace penstock
