// The submitted jobs of a pipeline.
#pragma once

#include <memory>

#include "penstock/runtime/local_runners.h"
#include "penstock/runtime/result.h"
#include "penstock/runtime/step_job.h"

namespace penstock {

/// One step runs, and one waits behind it. Used by the program's thread.
class StepQueue {
 public:
  explicit StepQueue(std::shared_ptr<LocalRunners> runners) : runners_(std::move(runners)) {}

  /// Submits a step or an evaluation and returns its result; first waits for the step before the last.
  StepResult start(const std::shared_ptr<StepJob>& job);
  /// Gives `job` its state. To be called before post().
  void prepare(StepJob& job) const;
  /// Submits a prepared job without waiting. It must not change any more.
  void post(const std::shared_ptr<StepJob>& job);

  /// Waits for the submitted jobs; throws the error of a failed one, unless it was a StepFailure reported before.
  void finish() const;
  /// The same, but never throws, and after a failure of the world does not wait for a rank that hangs.
  void settle() const noexcept;

 private:
  std::shared_ptr<LocalRunners> runners_;
  std::shared_ptr<StepState> last_, before_last_;
};

}  // namespace penstock
