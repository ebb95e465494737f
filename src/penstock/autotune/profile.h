// Measures the costs of a network's layers on this machine, and chooses a schedule and a partition by them.
#pragma once

#include <optional>
#include <span>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/planner.h"
#include "penstock/runtime/pipeline.h"

namespace penstock {

struct ProfileOptions {
  int steps = 4;  // timed steps of each pipeline in each pass, after some that are not timed
  /// Passes over all pipelines are repeated for this time, with at least one pass. The speed of a shared machine
  /// changes within seconds, so that pipelines can only be compared over several passes.
  double passes_ms = 8000;
  OptimizerFactory optimizer = {};  // the optimiser whose step is timed; none: plain SGD
  bool slowdown_under_load = true;  // whether to run the last of profiled_steps
};

/// Measures layers in running pipelines on all ranks of `world`: in a GPipe step with one fused W (F, I and W fused), a
/// ZB-H1 step (W per micro-batch), a 1F1B step (B whole) and, where there are enough layers, a looped step with chunks
/// as small as the planner may make them (F and I with weights in the cache). The micro-batches are those of `options`
/// and its sample and sample_targets; recompute, precision and kernels are those of `options`. The weights of `network`
/// do not change. Times are in ms, medians over passes of medians over steps. LayerCosts::slowdown_under_load is their
/// ratio to the times in a sequential step, in which one rank works at a time; 1 where `how` leaves that step out.
/// LayerCosts::time_variation is fitted to the measured lengths of the first three steps. Collective. Throws
/// ConfigError without a sample, for replicas and for annotated stages.
LayerCosts profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                   const ProfileOptions& how = {});

/// The pipelines that profile() times, in this order. The functions below are its parts.
struct ProfiledSteps {
  const char* schedule;
  WeightGradients weight_gradients;
  bool in_chunks = false;  // with as many chunks per rank as possible; otherwise one
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

/// Options for a pipeline of `what`, from `base`, which has the partition for one stage per rank. None where the
/// network has too few layers.
std::optional<PipelineOptions> profiled_options(const ProfiledSteps& what, const PipelineOptions& base,
                                                const ProfiledNetwork& network);

/// The measurement of one pipeline.
struct TimedRun {
  Plan plan;  // only its instructions and its partition are set
  TimedSteps steps;
};

struct TimedBatch {
  BatchTensors inputs;
  BatchTensors targets;
  int steps = 4;
};

/// Times `pipeline`. Collective; see Pipeline::time_layers.
TimedRun timed_run(Pipeline& pipeline, const TimedBatch& batch);

/// The costs, except for the kernels, from one run of each of profiled_steps with batches of `samples`. Without the
/// fourth run the costs contain no times with weights in the cache; without the last, slowdown_under_load is 1. Throws
/// ConfigError where another run is missing.
LayerCosts costs_of(std::span<const std::optional<TimedRun>> runs, std::int64_t samples);

/// The result of the schedule "auto".
struct AutoChoice {
  PipelineOptions options;  // `options` with the chosen schedule, partition, weight gradients and kernels
  Planned planned;          // the candidates
};

/// The schedule "auto": profile(), then make_plan() for the ranks and micro-batches of `options`; with 0 micro-batches,
/// for m = p, 2p, 4p and 8p, as far as the samples suffice, each profiled. Rank 0's times decide for all. Collective.
/// Ignores `how.slowdown_under_load`; all values of m share `how.passes_ms`. Throws as profile(), and ConfigError where
/// the options fix what "auto" is to choose.
AutoChoice choose_by_profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                             ProfileOptions how = {});

}  // namespace penstock
