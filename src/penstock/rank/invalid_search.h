// Why the loss of a step is infinite or not a number: the rank with the loss finds the cause, and all ranks agree on it.
#pragma once

#include <exception>
#include <optional>
#include <string>

#include "penstock/rank/job.h"
#include "penstock/rank/stage.h"

namespace penstock {

/// A rank of the last stage whose job has a loss that is not finite.
struct LastForward {
  Stage& stage;
  const Graph& graph;
  const RankSetting& setting;
  const StepJob& job;
  BatchRows& rows;
  const Stage::Arrivals& arrivals;  // of its newest F
};

/// Names the first value of `micro_batch` that is not finite: what the stage receives, the output of a layer or
/// function, a target, or only the loss. Repeats F of the stage with the same random numbers, which changes buffers as
/// F does.
std::string cause_of(const LastForward& last, MicroBatch micro_batch);

/// The error of a step that was cancelled: an InvalidLoss, the same on every rank, if the loss of a rank caused it; null
/// if another error did. Called on every rank. `own`: the error that this rank met. `last_update`: the newest training
/// step that changed the parameters. Throws the errors of the transport.
std::exception_ptr agreed_invalid_loss(const StagePlacement& placement, const RankStages& stages,
                                       const RankSetting& setting, const StepJob& job, const std::exception_ptr& own,
                                       std::optional<std::uint64_t> last_update);

}  // namespace penstock
