// The settings that must be the same on every rank of a pipeline, as text: ranks compare it, traces contain it.
#pragma once

#include <functional>

#include "penstock/model/loss.h"
#include "penstock/model/stages.h"
#include "penstock/rank/batch.h"
#include "penstock/rank/options.h"
#include "penstock/world/collectives.h"
#include "penstock/world/world.h"

namespace penstock {

/// The parts of a pipeline beyond its options.
struct PipelineParts {
  const World& world;
  const StagedGraph& staged;
  const Schedule& training;  // compute instructions of a step
  const Loss& loss;
  const rank::BatchAxesOf& axes;
};

/// The settings of the list in rank/options.h that `which` chooses, with values without line breaks.
Fingerprint settings_text(const PipelineOptions& options, const std::function<bool(const Setting&)>& which);

/// All of them with the parts of the pipeline, in a fixed order.
Fingerprint fingerprint_of(const PipelineOptions& options, const PipelineParts& parts);

}  // namespace penstock
