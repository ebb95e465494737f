// What the layers of a network cost on this machine, and the schedule and partition that follow from it.
#pragma once

#include <optional>
#include <span>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/planner.h"
#include "penstock/runtime/pipeline.h"

namespace penstock {

struct ProfileOptions {
  int steps = 4;  // timed, after some that are not, of each pipeline in each pass
  /// Passes over all pipelines go on for so long, and there is one at least: a shared machine's speed changes within a
  /// second, and pipelines are to be compared.
  double passes_ms = 8000;
  OptimizerFactory optimizer = {};  // whose step is timed; none: plain SGD
  bool slowdown_under_load = true;  // whether the last of profiled_steps is run too
};

/// Layers timed where they run, with all ranks of `world` at work: in a GPipe step with one fused W (F, I and W fused),
/// a ZB-H1 step (W per micro-batch), a 1F1B step (B in one) and, where there are layers for it, a looped step in chunks
/// as small as the planner may make (F and I in the cache). The micro-batches are those of `options` and its
/// sample, PipelineOptions::sample and sample_targets; recompute, precision and kernels count. `network`'s own weights
/// stay as they are. Times are in ms, medians over passes of medians over steps. LayerCosts::slowdown_under_load is how much
/// more they are than in a sequential step, where one rank works at a time, unless `how` leaves that out;
/// LayerCosts::time_variation, how much they vary, is what makes the first three steps as long as they were. Collective. Throws
/// ConfigError without a sample, for replicas and for stages that are annotated.
LayerCosts profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                   const ProfileOptions& how = {});

/// The same in parts. The steps that are timed, in this order:
struct ProfiledSteps {
  const char* schedule;
  WeightGradients weight_gradients;
  bool in_chunks = false;  // as many per rank as can be; otherwise one
};
inline constexpr ProfiledSteps profiled_steps[] = {{"gpipe", WeightGradients::fused},
                                                   {"zb-h1", WeightGradients::stream},
                                                   {"1f1b", WeightGradients::stream},
                                                   {"looped-bfs", WeightGradients::fused, true},
                                                   {"sequential", WeightGradients::stream}};

struct ProfiledNetwork {
  int stages = 1;  // one per rank
  int layers = 1;
};

/// `base`, which has the partition for one stage per rank, for a pipeline of `what`; none where layers are too few.
std::optional<PipelineOptions> profiled_options(const ProfiledSteps& what, const PipelineOptions& base,
                                                const ProfiledNetwork& network);

/// A pipeline of one of them, timed.
struct TimedRun {
  Plan plan;  // its instructions and its partition alone
  TimedSteps steps;
};

struct TimedBatch {
  BatchTensors inputs;
  BatchTensors targets;
  int steps = 4;
};

/// Collective; see Pipeline::time_layers.
TimedRun timed_run(Pipeline& pipeline, const TimedBatch& batch);

/// From one run of each of profiled_steps, whose batches had `samples`; all but the kernels. Without the fourth no
/// layer says what it takes in the cache; without the last slowdown_under_load is 1. Throws ConfigError where others are
/// missing.
LayerCosts costs_of(std::span<const std::optional<TimedRun>> runs, std::int64_t samples);

/// What the planner makes of that.
struct AutoChoice {
  PipelineOptions options;  // `options` with schedule, partition, weight gradients and kernels decided
  Planned planned;          // what was tried
};

/// The schedule "auto": profile(), then make_plan() for the ranks and micro-batches of `options`; with 0 micro-batches,
/// for m = p, 2p, 4p and 8p, as far as there are samples, each profiled. Rank 0's times decide for all. Collective.
/// `how.slowdown_under_load` is not asked, and all those m's share `how.passes_ms`. Throws as profile(), and ConfigError for
/// what leaves nothing to choose.
AutoChoice choose_by_profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                             ProfileOptions how = {});

}  // namespace penstock
