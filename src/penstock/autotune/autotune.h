// The public header of the module `autotune`: resolves options that are to be chosen by measuring.
#pragma once

#include "penstock/autotune/autotune_options.h"
#include "penstock/rank/options.h"

namespace penstock {

class Cell;
class World;
struct AutoChoice;

/// True if autotune() has something to measure for these options, and so needs a sample.
bool needs_measuring(const PipelineOptions& options);

/// Measures and chooses the following options, and returns options for a Pipeline:
///   schedule "auto"    measures layers in a running pipeline; the planner proposes schedules, partitions, modes of
///                      weight gradients and, with 0 micro-batches, m; measured steps decide among the best
///                      (choose_by_profile). Annotated stages, given chunks and a memory limit stay as they are.
///   kernels tuned      the fastest kernel for each layer's shape, if kernel_selection is empty
///   partition "time"   the partition whose slowest rank is the fastest, by times of single layers
///   memory limit in    the bytes of a micro-batch's activations on each stage, unless PipelineOptions::costs have
///   bytes              them: two steps in a pipeline of their own
/// Options that contain none of these are returned unchanged. A program that sets the returned options by hand repeats
/// the choice. The weights of `network` do not change. With a cache, a job of the same key (docs/tuning_file.md) takes
/// the decision of the first one and measures nothing. Collective: every process passes the same arguments and gets the
/// same result, which follows from the times, and the cache, of world rank 0. Throws ConfigError if the sample is
/// missing or does not fit the network, and as choose_by_profile() for the schedule "auto".
PipelineOptions autotune(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                         const AutotuneOptions& how);

/// The same with the reasons (autotune/choose.h).
AutoChoice autotune_with_reasons(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                                 const AutotuneOptions& how);

}  // namespace penstock
