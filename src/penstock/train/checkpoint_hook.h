// Checkpoints of a Trainer's training.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/runtime/checkpoint_saver.h"
#include "penstock/train/hook.h"
#include "penstock/train/training_saver.h"

namespace penstock {

/// When checkpoints are written. Several may be set; a checkpoint is due when one of them says so.
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
  /// SaverOptions::on_saved.
  std::function<void(const CommittedCheckpoint&)> on_saved = nullptr;
};

/// Writes checkpoints in the background, one at the end of the training, and one where TrainerOptions::stop_when ends
/// it. A checkpoint holds the state of the pipeline, the position in the data, and the states of all hooks; training
/// goes on from it with Trainer::resume(). Add it on every process. The training throws Failure if a checkpoint cannot
/// be written.
class CheckpointHook : public Hook, public TrainingSaver {
 public:
  /// Throws ConfigError for fewer than 2 checkpoints to keep, and times, steps or epochs that are not above 0.
  explicit CheckpointHook(CheckpointOptions options);
  ~CheckpointHook() override;

  void attached(Trainer& trainer) override;
  void on_end() override;

  void open(Pipeline& pipeline, std::optional<SavedPosition> newest) override;
  bool is_due_by_steps(const TrainingPosition& next) const override;
  bool is_due_by_time() const override;
  bool has_time() const override { return options_.every.seconds.has_value(); }
  void write(const TrainingProgress& progress, std::map<std::string, StateValues> states) override;
  void check() override;
  void finish() override;
  const std::string& folder() const override { return options_.folder; }
  void set_newest(std::optional<SavedPosition> newest) override { newest_ = newest; }

 private:
  CheckpointOptions options_;
  std::unique_ptr<CheckpointSaver> saver_;
  std::optional<SavedPosition> newest_;  // of the newest checkpoint
  std::int64_t last_ns_ = 0;
};

}  // namespace penstock
