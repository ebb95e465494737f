// Why the loss of a step is infinite or not a number.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "penstock/rank/job.h"
#include "penstock/rank/stage.h"

namespace penstock {

/// The F whose loss is not finite, to be run again.
struct InvalidForward {
  Stage& stage;
  const Graph& graph;
  const Stage::Arrivals& arrivals;
  const Tensors& targets;
  std::string loss_name;
  Finish loss;
};

/// Runs F of the last stage again, with the same random numbers, and names the first value that is not finite: what it
/// receives, the output of a layer or function, a target, or only the loss. Changes buffers as F does.
std::string cause_of(const InvalidForward& forward);

/// The error of a step that was cancelled: an InvalidLoss, the same on every rank, if the loss of a rank caused it; null
/// if another error did. Called on every rank. `own`: the error that this rank met. `last_update`: the newest training
/// step that changed the parameters. Throws the errors of the transport.
std::exception_ptr agreed_invalid_loss(const StagePlacement& placement, const RankStages& stages,
                                       const RankSetting& setting, const StepJob& job, const std::exception_ptr& own,
                                       std::optional<std::uint64_t> last_update);

}  // namespace penstock
