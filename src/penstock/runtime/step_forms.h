// The forms of a rank's static steps (transport/data_plane.h), under PipelineOptions::static_shapes and
// PipelineOptions::capture_steps.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "penstock/runtime/rank_setting.h"
#include "penstock/runtime/stage_placement.h"
#include "penstock/runtime/step_job.h"
#include "penstock/transport/receive_memory.h"

namespace penstock {

/// Used on its rank's thread.
class StepForms {
 public:
  /// `placement` and `setting` must outlive it.
  StepForms(const StagePlacement& placement, const RankSetting& setting) : placement_(placement), setting_(setting) {}

  /// The form of a job: one for each number of samples, of whole steps and of forward_backward. Null for jobs that are
  /// not static: without these options, and the later parts of a step, evaluations and inferences.
  std::shared_ptr<const StepForm> of(const StepJob& job);
  /// To be called between steps, on all ranks, when the next ones exchange other messages.
  void clear() { known_.clear(); }

 private:
  std::shared_ptr<const StepForm> made_for(const StepJob& job) const;

  const StagePlacement& placement_;
  const RankSetting& setting_;
  std::map<std::pair<std::int64_t, StepPart>, std::shared_ptr<const StepForm>> known_;
  const std::shared_ptr<ReceiveMemory> memory_ = std::make_shared<ReceiveMemory>();
};

}  // namespace penstock
