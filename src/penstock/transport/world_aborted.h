// What ends the waits of ranks that did not fail themselves.
#pragma once

#include "penstock/base/error.h"

namespace penstock {

/// A wait or a send ended because some rank aborted the world: a consequence, never the first cause.
class WorldAborted : public TransportError {
 public:
  using TransportError::TransportError;
};

/// A wait ended because the step that its message belongs to was cancelled: a consequence, as an abort, but of the step
/// alone; the world goes on.
class StepCancelled : public TransportError {
 public:
  using TransportError::TransportError;
};

/// The same for everything of a pipeline.
class PipelineCancelled : public StepCancelled {
 public:
  using StepCancelled::StepCancelled;
};

}  // namespace penstock
