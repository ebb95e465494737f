// The order of the parts of a step: forward_backward, once or several times to accumulate gradients, reduce_gradients,
// step.
#pragma once

#include <memory>

#include "penstock/rank/step_job.h"

namespace penstock {

/// Between two updates. Used by the program's thread.
class StepParts {
 public:
  /// Throws ConfigError for less than one call, and while gradients await their update.
  void update_every(int calls);
  /// Whether a train_step only accumulates gradients, unless it is the last before an update.
  bool accumulates() const { return calls_per_update_ > 1; }
  /// Whether enough calls were accumulated for an update.
  bool is_update_due() const { return calls_ >= calls_per_update_; }

  /// Whether gradients await their update.
  bool has_gradients() const { return next_ != StepPart::whole; }
  /// Throws ConfigError, naming the call `what`, while gradients await their update.
  void require_whole_steps(const char* what) const;
  /// Throws ConfigError where no forward_backward may come next.
  void require_forward_backward() const;
  /// Throws ConfigError where `part`, `reduce` or `update`, may not come next. An update may also come where the
  /// gradients are not reduced yet.
  void require_later(StepPart part) const;
  bool needs_reduction() const { return next_ == StepPart::reduce; }

  /// Adds a forward_backward and sets its shares. `weight`: the total weight of its samples in a mean over all calls; 0
  /// for a sum.
  void begin(const std::shared_ptr<StepJob>& job, double weight);
  /// Ends `reduce` or `update`.
  void end(StepPart part);
  /// The newest forward_backward whose gradients await their update.
  std::shared_ptr<const StepJob> begun() const { return begun_; }

 private:
  StepPart next_ = StepPart::whole;
  std::shared_ptr<const StepJob> begun_;
  int calls_per_update_ = 1;
  int calls_ = 0;      // of forward_backward, since the last update
  double weight_ = 0;  // total weight of their samples
};

}  // namespace penstock
