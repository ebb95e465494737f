// What a Trainer asks to write its checkpoints; CheckpointHook is one.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "penstock/train/hook.h"
#include "penstock/train/progress.h"

namespace penstock {

class Pipeline;

/// The position of a training that has been written to a checkpoint.
struct SavedPosition {
  std::int64_t completed = 0;
  bool owes_test = false;
  friend bool operator==(const SavedPosition&, const SavedPosition&) = default;
};

/// All calls but those that ask are collective.
class TrainingSaver {
 public:
  virtual ~TrainingSaver() = default;

  /// Called first. `newest`: the folder has a checkpoint of the state that the training begins with, at this position.
  virtual void open(Pipeline& pipeline, std::optional<SavedPosition> newest) = 0;
  /// Whether a checkpoint is due before the step `next`: the same on every process.
  virtual bool is_due_by_steps(const TrainingPosition& next) const = 0;
  /// The same by this process's clock; and whether the clock is ever used.
  virtual bool is_due_by_time() const = 0;
  virtual bool has_time() const = 0;
  /// Begins a checkpoint of the state that the submitted steps leave, unless the newest is of the same position. Does
  /// not wait until it is written.
  virtual void write(const TrainingProgress& progress, std::map<std::string, StateValues> states) = 0;
  /// Throws the error of a checkpoint that could not be written, on the main process.
  virtual void check() = 0;
  /// Waits until the newest checkpoint is written.
  virtual void finish() = 0;
  /// The folder of the checkpoints.
  virtual const std::string& folder() const = 0;
  /// The state is now that of a checkpoint at this position, so that none is due for it; none: write() writes one
  /// whatever was written before.
  virtual void set_newest(std::optional<SavedPosition> newest) = 0;
};

}  // namespace penstock
