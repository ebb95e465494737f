// The states of a pipeline that are no tensors, in the manifests of its checkpoints.
#pragma once

#include <optional>

#include "penstock/checkpoint/manifest.h"
#include "penstock/rank/loss_scaler.h"
#include "penstock/rank/options.h"
#include "penstock/world/world.h"

namespace penstock {

/// The settings on which the bits of this pipeline's results depend. `schedule` is the one that it executes.
BitSettings bit_settings(const PipelineOptions& options, const World& world, const Schedule& schedule);

using States = std::map<std::string, StateValues>;

void add_loss_scaler(States& states, const LossScaler& scaler);
/// None without fp16.
std::optional<LossScaler::State> loss_scaler_in(const States& states);
void add_learning_rate(States& states, std::optional<double> rate);
/// None where the pipeline did not set it.
std::optional<double> learning_rate_in(const States& states);

}  // namespace penstock
