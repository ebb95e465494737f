// Decides whether a failed job is started again, and from which checkpoint it goes on.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "penstock/checkpoint/checkpoint_reader.h"

namespace penstock {

/// The newest checkpoint in `folder` that is complete; none if there is none, if `folder` is empty or cannot be read.
std::optional<CheckpointPlace> newest_complete(const std::string& folder);

/// Counts the restarts of one job.
class RestartLimit {
 public:
  /// After so many restarts in a row without a new complete checkpoint a job with checkpoints is given up: it would
  /// fail in the same way again.
  static constexpr int most_without_progress = 3;

  enum class Decision { restart, used_up, no_progress };

  /// At most `allowed` restarts. `newest`: the newest complete checkpoint when the job begins.
  RestartLimit(int allowed, std::optional<CheckpointPlace> newest) : allowed_(allowed), newest_(std::move(newest)) {}

  /// For a job without checkpoints, whose progress is not known.
  Decision after_failure();
  /// `newest`: the newest complete checkpoint after the attempt that failed.
  Decision after_failure(const std::optional<CheckpointPlace>& newest);

  /// The restarts that were decided, and those that are left.
  int done() const { return done_; }
  int left() const { return allowed_ - done_; }

 private:
  int allowed_;
  std::optional<CheckpointPlace> newest_;
  int done_ = 0;
  int without_progress_ = 0;
};

}  // namespace penstock
