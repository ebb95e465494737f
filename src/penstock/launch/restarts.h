// Whether a failed job is started again, and from which checkpoint a `penstock train` then goes on.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/checkpoint/checkpoint_reader.h"

namespace penstock::launch {

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

  /// `complete`: the complete checkpoints after the attempt that failed; none for a job without checkpoints, whose
  /// progress is not known. One that was not there before is progress, whatever its step: the attempt may have gone on
  /// from an older one because a newer one is damaged.
  Decision after_failure(const std::optional<std::vector<CheckpointPlace>>& complete);

  /// The restarts that were decided, and those that are left.
  int done() const { return done_; }
  int left() const { return allowed_ - done_; }

 private:
  int allowed_;
  std::vector<CheckpointPlace> complete_;
  int done_ = 0;
  int without_progress_ = 0;
};

/// Settings of a training, from its flags and its --config file. Empty text: not given.
struct TrainSettings {
  std::string checkpoint = {};  // the folder of checkpoints
  std::string resume = {};      // a folder, one checkpoint of it, or "auto"
  std::string max_time = {};

  /// The folder into which the training writes checkpoints; empty: none. A resumed training goes on in the folder from
  /// which it resumes unless --checkpoint names another.
  std::string folder() const;
};

/// Parses the output of `penstock train ... --print-config`. Throws Failure for a line that is not part of it.
TrainSettings parse_train_settings(const std::string& printed);

/// Runs arguments[0] with these arguments and --print-config; they begin with the program and its verb "train". Throws
/// ConfigError if the program refuses its arguments, which it reports itself on standard error; else Failure.
TrainSettings read_train_settings(const std::vector<std::string>& arguments);

/// The arguments of a later attempt of `arguments`, so that it goes on from the newest checkpoint: with "--resume auto"
/// if it would begin anew, and with "--resume FOLDER" if it would begin from one checkpoint or another folder again
/// although this job has written a newer one (`has_progress`).
std::vector<std::string> resuming_arguments(const std::vector<std::string>& arguments, const TrainSettings& settings,
                                            bool has_progress);

}  // namespace penstock::launch
