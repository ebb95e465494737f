// Executes the instructions of one rank.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "penstock/base/stream_marks.h"
#include "penstock/model/sequence_memory.h"
#include "penstock/rank/activation_store.h"
#include "penstock/rank/batch_rows.h"
#include "penstock/rank/boundary_messages.h"
#include "penstock/rank/gradient_reducer.h"
#include "penstock/rank/held_bytes.h"
#include "penstock/rank/job_results.h"
#include "penstock/rank/parameter_updater.h"
#include "penstock/rank/rank_setting.h"
#include "penstock/rank/stage.h"
#include "penstock/rank/stage_clocks.h"
#include "penstock/rank/stage_placement.h"
#include "penstock/rank/step_job.h"
#include "penstock/trace/recorder.h"
#include "penstock/world/device.h"

namespace penstock {

/// The objects of a rank on which its instructions work; all of them outlive the executor.
struct StepExecutorParts {
  const Graph& graph;
  const RankSetting& setting;
  const RankDevice& device;
  const StagePlacement& placement;
  const RankStages& stages;
  GradientReducer& reducer;
  ParameterUpdater& updater;
  StageClocks& clocks;
};

/// A handler for execute() (executor.h). Owns what belongs to the running step: activations, messages, batch, results.
/// Used on its rank's thread, except for const functions while the rank is idle.
class StepExecutor {
 public:
  explicit StepExecutor(const StepExecutorParts& parts);

  /// Starts `job`, which must live until clear(). Not for a later part of a step.
  void begin(const StepJob& job);
  /// Executes the job's instructions. Throws what they throw.
  void run(const StepJob& job, Recorder& recorder);
  /// Ends a job that begin() has started: on the rank that collects, waits for its results.
  void end();
  /// Discards what the job left; to be called after every job.
  void clear(bool failed);

  /// The handler of execute().
  void begin(const Instruction& instruction);
  Arrival receive(const Instruction& instruction);
  void perform(const Instruction& instruction);

  /// The instruction that runs, or ran last.
  const Instruction& current() const { return current_; }
  /// Whether an F of the job has not run yet.
  bool has_forwards_left() const { return forwards_left_ > 0; }
  const JobResults& results() const { return results_; }
  /// Frees the layers' memory of an inference session.
  void forget_session(std::uint64_t session) { sessions_.erase(session); }

  /// Peak of live micro-batches.
  int peak_activations() const { return activations_.peak(); }
  /// Predicted peak of live micro-batches, over the executed schedules.
  int predicted_activations() const { return predicted_activations_; }
  /// The bytes of the live micro-batches; null unless PipelineOptions::count_bytes is set.
  const HeldBytes* held_bytes() const { return bytes_.get(); }

 private:
  Stage& stage(StageId id) const;
  const CompiledSchedule& compiled() const { return job_->schedule_of(parts_.placement.replica()); }
  /// The number of this rank's lists in a compiled schedule.
  std::size_t own_list() const { return parts_.placement.rank().index(); }
  /// run() on a device: the times of its spans are those of the device, and what the host has to know of the step is
  /// read when the device has completed it.
  void run_on_device(Recorder& recorder);
  void forward(Stage& stage, MicroBatch micro_batch);
  /// Sets the cause of `error`, which F of the last stage threw. `arrivals`: its newest ones.
  void explain(NonFiniteLoss& error, Stage& stage, const Stage::Arrivals& arrivals);
  void backward(Stage& stage, const Instruction& instruction);
  void weight_grad(Stage& stage, const Instruction& instruction);
  SequenceMemory* memory_of(const Stage& stage, MicroBatch micro_batch);
  /// Null in steps whose allocations are not observed, and in those whose bytes are not counted.
  HeldBytes* observed_bytes() const;
  HeldBytes* counted_bytes() const;
  HeldBytes::Context context_of(const Stage& stage, MicroBatch micro_batch) const;
  /// By received value of `stage`: whether it comes from another rank.
  std::vector<bool> comes_from_others(const Stage& stage) const;

  StepExecutorParts parts_;
  BatchRows rows_;
  BoundaryMessages messages_;
  JobResults results_;
  ActivationStore<Activations> activations_;
  std::optional<StreamMarks> marks_;  // on a device
  int predicted_activations_ = 0;
  std::unique_ptr<HeldBytes> bytes_;
  const StepJob* job_ = nullptr;
  Instruction current_;
  std::size_t forwards_left_ = 0;  // of this rank, in this step
  /// Sequence memory by inference session, then by stage and micro-batch.
  std::map<std::uint64_t, std::map<std::pair<StageId, MicroBatch>, SequenceMemory>> sessions_;
};

}  // namespace penstock
