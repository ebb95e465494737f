// Decides whether a failed job is started again, and from which checkpoint it goes on.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "penstock/checkpoint/checkpoint_reader.h"

namespace penstock {

/// The complete checkpoints in `folder`, newest first; none if it is empty or cannot be read. Their tensors are not
/// read: a damaged one counts as complete here, and the training that resumes skips it.
std::vector<CheckpointPlace> complete_checkpoints(const std::string& folder);

/// Counts the restarts of one job.
class RestartLimit {
 public:
  /// After so many restarts in a row without a new complete checkpoint a job with checkpoints is given up: it would
  /// fail in the same way again.
  static constexpr int most_without_progress = 3;

  enum class Decision { restart, used_up, no_progress };

  /// At most `allowed` restarts. `complete`: the complete checkpoints when the job begins.
  RestartLimit(int allowed, std::vector<CheckpointPlace> complete)
      : allowed_(allowed), complete_(std::move(complete)) {}

  /// For a job without checkpoints, whose progress is not known.
  Decision after_failure();
  /// `complete`: the complete checkpoints after the attempt that failed. One that was not there before is progress,
  /// whatever its step: the attempt may have gone on from an older one because a newer one is damaged.
  Decision after_failure(const std::vector<CheckpointPlace>& complete);

  /// The restarts that were decided, and those that are left.
  int done() const { return done_; }
  int left() const { return allowed_ - done_; }

 private:
  int allowed_;
  std::vector<CheckpointPlace> complete_;
  int done_ = 0;
  int without_progress_ = 0;
};

}  // namespace penstock
