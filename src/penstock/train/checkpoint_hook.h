// Checkpoints of a Trainer's training: when they are written, and the position of the training that they hold.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/checkpoint/manifest.h"
#include "penstock/state/checkpoint_saver.h"
#include "penstock/train/hook.h"
#include "penstock/train/skipped_steps.h"

namespace penstock {

class Pipeline;

/// A plain value. EpochReport::loss of `epoch_report` is a weighted sum until the epoch ends.
struct TrainingProgress {
  DataPosition data = {};
  std::int64_t completed = 0;               // steps of this training, over all epochs
  std::int64_t steps_per_epoch = 0;         // batches of the training set
  EpochReport epoch_report = {};            // of the epoch that has begun
  double epoch_weight = 0;                  // the total weight of its losses
  std::optional<std::string> stopped = {};  // the reason given to Trainer::stop()
  SkippedSteps::Counts skipped = {};
  bool owes_test = false;  // the epoch's steps are done, and the test after them is not
};

StateValues state_of(const TrainingProgress& progress);
/// The inverse; `data` comes from the manifest. Throws DataError for a missing member.
TrainingProgress progress_in(const StateValues& state, const DataPosition& data);

/// The position of a training that has been written to a checkpoint.
struct SavedPosition {
  std::int64_t completed = 0;
  bool owes_test = false;
  friend bool operator==(const SavedPosition&, const SavedPosition&) = default;
};

/// When checkpoints are written. Several may be set; a checkpoint is due if any of them is reached.
struct CheckpointEvery {
  std::optional<double> seconds = {};
  std::optional<std::int64_t> steps = {};   // over all epochs
  std::optional<std::int64_t> epochs = {};  // after the epoch's test
};

struct CheckpointOptions {
  std::string folder = {};
  int keep = 2;  // complete checkpoints to keep, at least 2
  CheckpointEvery every = {.seconds = 600};
  std::vector<CheckpointText> texts = {};            // small files to store with each, as the settings of the run
  std::map<std::string, std::string> metadata = {};  // of the files with weights
  bool trained_only = false;                         // CheckpointContents::trained_only
  /// SaverOptions::on_saved.
  std::function<void(const CommittedCheckpoint&)> on_saved = nullptr;
};

/// Writes checkpoints in the background, one at the end of the training, and one if TrainerOptions::stop_when ends
/// it. A checkpoint holds the state of the pipeline, the position in the data, and the states of all hooks; training
/// goes on from it with Trainer::resume(). Add it on every process. The training throws Failure if a checkpoint cannot
/// be written.
class CheckpointHook : public Hook {
 public:
  /// Throws ConfigError for fewer than 2 checkpoints to keep, and times, steps or epochs that are not above 0.
  explicit CheckpointHook(CheckpointOptions options);
  ~CheckpointHook() override;

  void on_end() override;

  // For the Trainer. All calls except is_due_by_...() and has_time() are collective.

  /// Called first. `newest`: the position of the checkpoint in the folder with which the training begins, if any.
  void open(Pipeline& pipeline, std::optional<SavedPosition> newest);
  /// Whether a checkpoint is due before the step `next`: the same on every process.
  bool is_due_by_steps(const TrainingPosition& next) const;
  /// Whether a checkpoint is due by this process's clock, and whether the clock is ever used.
  bool is_due_by_time() const;
  bool has_time() const { return options_.every.seconds.has_value(); }
  /// Begins a checkpoint of the state that the submitted steps leave, unless the newest is of the same position. Does
  /// not wait until it is written.
  void write(const TrainingProgress& progress, std::map<std::string, StateValues> states);
  /// Throws the error of a checkpoint that could not be written, on the main process.
  void check();
  /// Waits until the newest checkpoint is written.
  void finish();
  /// The folder of the checkpoints.
  const std::string& folder() const { return options_.folder; }
  /// Sets the position of the newest checkpoint: none is due at this position. None: the next write() always writes.
  void set_newest(std::optional<SavedPosition> newest) { newest_ = newest; }

 private:
  CheckpointOptions options_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::optional<SavedPosition> newest_;  // of the newest checkpoint
  std::int64_t last_ns_ = 0;
};

}  // namespace penstock
