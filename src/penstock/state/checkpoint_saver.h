// Writes checkpoints of a pipeline while training goes on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "penstock/checkpoint/manifest.h"

namespace penstock::state {
struct SaverParts;
}  // namespace penstock::state

namespace penstock {

/// What the program adds to a checkpoint of its pipeline.
struct CheckpointContents {
  DataPosition data = {};                            // the next batch
  std::map<std::string, StateValues> states = {};    // Manifest::states
  std::vector<CheckpointText> texts = {};            // small files, as the settings of the run
  std::map<std::string, std::string> metadata = {};  // of the files with weights
  /// Leaves out the values of frozen parameters: loading keeps the pipeline's, which must be the same.
  bool trained_only = false;
};

struct SaverOptions {
  std::string folder = {};
  int keep = 2;  // complete checkpoints to keep, at least 2
  /// Called in the main process, on the thread that writes, when a checkpoint survives a power failure. Must not throw.
  std::function<void(const CommittedCheckpoint&)> on_saved = nullptr;
};

/// Made by Pipeline::checkpoints(), and used by the program's thread. At most one checkpoint is being written; memory
/// holds at most one copy of the state. All calls are collective. The pipeline must outlive it.
class CheckpointSaver {
 public:
  /// Locks the folder. Throws, on every process, ConfigError or Failure as CheckpointWriter does on one.
  CheckpointSaver(state::SaverParts parts, const SaverOptions& options);
  /// Abandons a checkpoint that is not written yet, and loses its error: call finish() first. If the disk does not
  /// respond, leaves the work to its thread.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Begins a checkpoint of the state that all submitted steps leave, and returns before they are done; first waits
  /// until the former checkpoint is written. If the newest step fails, a parameter, buffer or state of the optimiser
  /// contains NaN, or a trained parameter infinities, a warning says so and the checkpoint is not kept: it replaces no
  /// good one. Throws ConfigError while gradients await their update; on the main process the Failure of writing the
  /// former checkpoint; Failure if a call of the system for one of its files does not return within the world's
  /// deadline.
  void save(const CheckpointContents& contents);
  /// On the main process, throws the Failure of a checkpoint whose writing has ended. Does not wait.
  void check();
  /// Returns when the last checkpoint is on the disk or abandoned. Throws Failure as save() does.
  void finish();

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;  // shared with the thread that writes
};

}  // namespace penstock
