// Options that leave a choice open, decided by measuring: what a Pipeline is made from.
#pragma once

#include "penstock/autotune/profile.h"

namespace penstock {

/// Decides whatever `options` leave to be measured, and returns them as a Pipeline takes them:
///   schedule "auto"    layers are timed where they run, and the planner chooses the schedule, the partition, how weight
///                      gradients gather and, with 0 micro-batches, m (choose_by_profile)
///   kernels tuned      the fastest kernel for each layer's shape, where kernel_selection is empty
///   partition "time"   the partition whose slowest rank is the fastest, by times of single layers
/// Options that leave nothing open come back as they are. Measures on `inputs` and `targets`, a training batch; the
/// weights of `network` stay as they are. Every process calls it with the same arguments and gets the same result, as
/// world rank 0's times decide. Throws ConfigError where the batch does not fit the network, and for what the schedule
/// "auto" cannot choose for: annotated stages, replicas, chunks, a memory limit.
PipelineOptions autotune(World& world, Cell& network, const Loss& loss, PipelineOptions options,
                         const BatchTensors& inputs, const BatchTensors& targets, const ProfileOptions& how = {});

/// The same on the batch that PipelineOptions::sample and sample_targets hold.
PipelineOptions autotune(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                         const ProfileOptions& how = {});

}  // namespace penstock
