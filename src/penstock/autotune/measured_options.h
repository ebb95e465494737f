// Chooses options by measuring a network's layers one by one. Used inside this module only.
#pragma once

#include "penstock/model/cell.h"
#include "penstock/runtime/options.h"
#include "penstock/world/world.h"

namespace penstock {

/// Returns `options` with the fastest kernel_selection under Kernels::tuned, and with the partition "time" replaced by
/// the partition found. Options that need no measurement are returned unchanged. World rank 0 measures, on one
/// micro-batch of PipelineOptions::sample, and all ranks get its result. Collective. Throws ConfigError where a
/// measurement needs a sample and there is none.
PipelineOptions measured_options(World& world, Cell& network, PipelineOptions options);

}  // namespace penstock
