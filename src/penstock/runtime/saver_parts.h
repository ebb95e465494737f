// What a CheckpointSaver uses of its pipeline.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "penstock/checkpoint/manifest.h"
#include "penstock/runtime/job_factory.h"
#include "penstock/runtime/local_runners.h"
#include "penstock/runtime/step_parts.h"

namespace penstock {

struct SaverParts {
  std::shared_ptr<LocalRunners> runners;
  const JobFactory& jobs;
  const StepParts& steps;
  std::function<void()> require_own_values;  // throws ConfigError while averages replace the parameters
  std::uint32_t pipeline = 0;
  std::uint64_t seed = 0;
  BitSettings bits = {};
  const std::set<std::string>& damaged;  // CheckpointFolder::damaged
};

}  // namespace penstock
