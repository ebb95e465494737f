// Reads the newest usable checkpoint into a pipeline's ranks. Every process reads only the tensors of its own ranks.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "penstock/checkpoint/manifest.h"
#include "penstock/rank/local_runners.h"

namespace penstock {

struct LoadedCheckpoint {
  std::optional<Manifest> manifest = {};  // none where no checkpoint is usable
  std::set<std::string> damaged = {};     // directories that were skipped
};

/// The newest checkpoint of the folder, or the checkpoint, `path` that is complete and undamaged replaces the state of
/// all ranks: parameters, buffers, the optimisers' state, averages, the loss scale. Each damaged one is logged on the
/// main process, and skipped. Returns the same on every process. Throws ConfigError for a checkpoint of another network
/// or optimiser, and NotReadable where none is usable, and one that was skipped may be whole. Collective; no step may
/// be running.
LoadedCheckpoint load_checkpoint(LocalRunners& runners, const std::string& path);

}  // namespace penstock
