// The exceptions that end the waits of ranks that did not fail themselves.
#pragma once

#include "penstock/base/error.h"

namespace penstock {

/// A wait or a send ended because some rank aborted the world: a consequence of a failure, never its cause.
class WorldAborted : public TransportError {
 public:
  using TransportError::TransportError;
};

/// A wait ended because the step that its message belongs to was cancelled. The world remains usable.
class StepCancelled : public TransportError {
 public:
  using TransportError::TransportError;
};

/// The same where all messages of the pipeline were cancelled.
class PipelineCancelled : public StepCancelled {
 public:
  using StepCancelled::StepCancelled;
};

}  // namespace penstock
