// The number of samples of PipelineOptions::sample. Used inside this module only.
#pragma once

#include <cstdint>

#include "penstock/base/split.h"
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/options.h"

namespace penstock {

/// The samples of the sample batch that one replica gets, of the largest share. Throws ConfigError for an empty batch.
inline std::int64_t samples_per_replica(const PipelineOptions& options, int replicas) {
  const BatchAxesOf axes{{"sample", options.input_layout}, {"sample_targets", options.target_layout}, {}};
  return split(axes.samples(options.sample, options.sample_targets), {.index = 0, .of = replicas}).size();
}

}  // namespace penstock
