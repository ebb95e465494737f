// The settings that must be the same on every rank of a pipeline, as text: ranks compare it, traces contain it.
#pragma once

#include "penstock/model/loss.h"
#include "penstock/model/stages.h"
#include "penstock/runtime/batch_axes.h"
#include "penstock/runtime/options.h"
#include "penstock/world/preflight.h"
#include "penstock/world/world.h"

namespace penstock {

/// The parts of a pipeline beyond its options.
struct PipelineParts {
  const World& world;
  const StagedGraph& staged;
  const Schedule& training;  // compute instructions of a step
  const Loss& loss;
  const BatchAxesOf& axes;
};

/// Every setting as a name and a value without line breaks, in a fixed order.
Fingerprint fingerprint_of(const PipelineOptions& options, const PipelineParts& parts);

}  // namespace penstock
