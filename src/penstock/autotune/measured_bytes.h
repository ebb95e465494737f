// Measures the bytes of activations, which a memory limit in bytes needs. Used inside this module only.
#pragma once

#include "penstock/model/cell.h"
#include "penstock/model/loss.h"
#include "penstock/runtime/options.h"
#include "penstock/schedule/stage_costs.h"
#include "penstock/world/world.h"

namespace penstock {

/// Whether the memory limit of `options` is in bytes, and PipelineOptions::costs do not say how many a micro-batch's
/// activations have.
bool needs_bytes(const PipelineOptions& options);

/// `options` without a memory limit in bytes: for decisions that do not depend on it, made before bytes are known.
PipelineOptions without_bytes(PipelineOptions options);

/// PipelineOptions::costs (unit costs where there are none) with the activation_bytes and the weight_share that two
/// training steps of `options` show on sample and sample_targets, one micro-batch at a time. Where the schedule of
/// `options` splits any B, a stage counts with the larger of its bytes before and after I, and the weight share is
/// the largest of all stages: no stage needs more. Partition, kernels and m of `options` are decided. Collective;
/// every process gets the same. Throws ConfigError without a sample.
StageCosts measured_bytes(World& world, Cell& network, const Loss& loss, const PipelineOptions& options);

}  // namespace penstock
