// The public header of the module `autotune`: resolves options that are to be chosen by measuring.
#pragma once

#include "penstock/autotune/profile.h"

namespace penstock {

/// Measures and chooses the following options, and returns options for a Pipeline:
///   schedule "auto"    measures layers in a running pipeline; the planner chooses the schedule, the partition, how
///                      weight gradients are accumulated and, with 0 micro-batches, m (choose_by_profile)
///   kernels tuned      the fastest kernel for each layer's shape, where kernel_selection is empty
///   partition "time"   the partition whose slowest rank is the fastest, by times of single layers
/// Options that contain none of these are returned unchanged. `inputs` and `targets` are a training batch; the weights
/// of `network` do not change. Collective: every process passes the same arguments and gets the same result, which
/// follows from the times of world rank 0. Throws ConfigError where the batch does not fit the network, and where the
/// schedule "auto" is combined with annotated stages, replicas, chunks or a memory limit.
PipelineOptions autotune(World& world, Cell& network, const Loss& loss, PipelineOptions options,
                         const BatchTensors& inputs, const BatchTensors& targets, const ProfileOptions& how = {});

/// The same with PipelineOptions::sample and sample_targets as the batch.
PipelineOptions autotune(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                         const ProfileOptions& how = {});

}  // namespace penstock
