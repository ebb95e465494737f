// Loads a stored state into a pipeline's ranks: a state dict, or the newest usable checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "penstock/checkpoint/manifest.h"
#include "penstock/rank/rank_runner.h"
#include "penstock/rank/stage.h"
#include "penstock/world/gather.h"
#include "penstock/world/rank_context.h"

namespace penstock::state {

/// Called on every rank's thread with the same `state`. Copies the values of `state` if all fit. Returns the first
/// three differences between names, shapes and dtypes of all ranks' parameters and buffers and those of `state`, the
/// same text on every rank; empty if all fit.
std::string load_values(const RankContext& context, const Tag& tag, const rank::RankStages& stages,
                        const StateDict& state);

struct LoadedCheckpoint {
  std::optional<Manifest> manifest = {};  // none if no checkpoint is usable
  std::set<std::string> damaged = {};     // directories that were skipped
  bool has_frozen = false;                // it says which parameters train: the schedule's messages may change
};

/// The newest checkpoint of the folder, or the checkpoint, `path` that is complete and undamaged replaces the state of
/// all ranks: parameters, buffers, the optimisers' state, averages, the loss scale. Each damaged one is logged on the
/// main process, and skipped. Returns the same on every process. Throws ConfigError for a checkpoint of another network
/// or optimiser, and NotReadable where none is usable, and one that was skipped may be whole. Collective; no step may
/// be running.
LoadedCheckpoint load_checkpoint(rank::LocalRunners& runners, const std::string& path);

}  // namespace penstock::state
