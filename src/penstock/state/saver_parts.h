// What a CheckpointSaver uses of its pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "penstock/checkpoint/manifest.h"
#include "penstock/rank/local_runners.h"

namespace penstock {

/// What a checkpoint records of the pipeline: the steps that were submitted, and the learning rate that the program has set.
struct StepsDone {
  std::int64_t steps = 0;
  std::optional<double> learning_rate = std::nullopt;
};

struct SaverParts {
  std::shared_ptr<LocalRunners> runners;
  std::function<StepsDone()> position;
  /// Throws ConfigError while gradients await their update, or averages replace the parameters.
  std::function<void()> require_savable;
  std::uint32_t pipeline = 0;
  std::uint64_t seed = 0;
  BitSettings bits = {};
  const std::set<std::string>& damaged;  // CheckpointFolder::damaged
};

}  // namespace penstock
