// Options that are decided by measuring a network's layers one by one. Inside this module only.
#pragma once

#include "penstock/model/cell.h"
#include "penstock/runtime/options.h"
#include "penstock/world/world.h"

namespace penstock {

/// `options` with Kernels::tuned given the selection that is the fastest, and the partition "time" replaced by what it
/// comes to; as they are where they leave nothing to decide. World rank 0 measures, on one micro-batch of
/// PipelineOptions::sample, and all ranks get its result. Collective. Throws ConfigError where a sample is needed and
/// there is none.
PipelineOptions measured_options(World& world, Cell& network, PipelineOptions options);

}  // namespace penstock
