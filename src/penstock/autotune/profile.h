// Measures the costs of a network's layers, and of messages between hosts, on this machine.
#pragma once

#include <optional>
#include <span>

#include "penstock/autotune/autotune_options.h"
#include "penstock/model/cell.h"
#include "penstock/pipeline/profiler.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/plan/plan_file.h"
#include "penstock/rank/options.h"
#include "penstock/world/world.h"

namespace penstock {

class Site;

/// Measures layers in running pipelines on all ranks of `world`: in a GPipe step with one fused W (F, I and W fused), a
/// ZB-H1 step (W per micro-batch), a 1F1B step (B whole) and, where there are enough layers, a looped step with chunks
/// as small as the planner may make them (F and I with weights in the cache). Micro-batches, recompute,
/// precision and kernels are set by `options`; its schedule, chunks and partition do not matter. The batch is the
/// sample of `how`. The weights of `network` do not change. Times are in ms, medians over passes of medians
/// over steps, of replica 0; the update includes the sum of gradients over replicas. LayerCosts::samples is the share
/// of one replica. LayerCosts::link is the result of speed_between_hosts() if there are several hosts; on one host
/// the time of a message is only a latency. LayerCosts::slowdown_under_load is the ratio of the times to those in a
/// sequential step, in which one rank works at a time; 1 if `how` omits that step.
///
/// Annotated networks are measured on the stages of their annotations, and LayerCosts has their layers stage by stage.
/// The looped step with other chunks is left out then. Where the annotations give several stages per rank, the others
/// are steps of looped and interleaved schedules, without a sequential one.
///
/// With PipelineOptions::memory_limit no step holds more live micro-batches than that permits or, where that is more,
/// than 1F1B (interleaved for several stages per rank) holds: 1F1B with W's over parts of the step replaces GPipe,
/// and the looped step with small chunks is left out. With a limit in bytes, no more than 1F1B holds; the layers'
/// activation_bytes are scaled to the bytes that are then measured on each stage, and are the sizes of outputs
/// otherwise.
///
/// With AutotuneOptions::cluster, times are as on devices of speed 1, and LayerCosts::samples counts all replicas. Links
/// are not measured: the planner takes the cluster's.
///
/// Collective. Throws ConfigError without a sample, for instructions of the program's own, and for annotations that
/// leave a stage without layers.
LayerCosts profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                   const AutotuneOptions& how);

struct Profiled {
  LayerCosts costs;
  double kernel_gain = 1;  // TunedKernels::gain, if kernels were measured
};

/// profile(), and how much faster the kernels are that it chose.
Profiled profiled_layers(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                         const AutotuneOptions& how);

/// The pipelines that profile() times, in this order. The functions below are its parts.
struct ProfiledSteps {
  const char* schedule;            // with one stage per rank
  const char* schedule_of_chunks;  // where annotations give several stages per rank; null: left out
  WeightGradients weight_gradients;
  bool splits = false;     // every B is an I and a W
  bool in_chunks = false;  // with as many chunks per rank as possible; otherwise one, or those of the annotations
};
inline constexpr ProfiledSteps profiled_steps[] = {
    {"gpipe", "looped-bfs", WeightGradients::fused},
    {"zb-h1", "interleaved", WeightGradients::stream, /*splits=*/true},
    {"1f1b", "interleaved", WeightGradients::stream},
    {"looped-bfs", nullptr, WeightGradients::fused, /*splits=*/false, /*in_chunks=*/true},
    {"sequential", nullptr, WeightGradients::stream}};

struct ProfiledNetwork {
  int ranks = 1;   // pipeline ranks
  int layers = 1;  // that a stage may begin with (possible_begins)
  int chunks = 0;  // stages per rank that annotations give; 0 without annotations
};

/// Options for a pipeline of `what`, from `base`, which has the partition for one stage per rank. None where `what` is
/// left out.
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

/// Times `pipeline`. Collective; see Profiler::time_layers.
TimedRun timed_run(Pipeline& pipeline, const TimedBatch& batch);

/// `run` with times as on devices of speed 1.
TimedRun at_speed_one(TimedRun run, const Site& site);

/// The costs, except for the kernels, from one run of each of profiled_steps with batches of `samples` per replica.
/// Without the fourth run the costs contain no times with weights in the cache; without the last, slowdown_under_load
/// is 1. Throws ConfigError where another run is missing.
LayerCosts costs_of(std::span<const std::optional<TimedRun>> runs, std::int64_t samples);

/// The layers of each of the p * v stages of an annotated network; empty without annotations. v is
/// PipelineOptions::chunks or, where that is 0, the smallest that the annotations fit into; one rank has one stage.
/// Throws ScheduleError for annotations that contradict each other or do not fit, and ConfigError for a stage without
/// layers.
StageLayers annotated_stages(Cell& network, const PipelineOptions& options, int ranks);

/// The speed of the slowest link between the hosts of consecutive pipeline ranks, in bytes per millisecond and
/// milliseconds, from messages of replica 0 that no other rank disturbs; equal on all ranks. Within a host the bytes of
/// a message cost next to nothing, so that ranks of one host are left out; none where all ranks are on one host.
/// Collective.
std::optional<LinkSpeed> speed_between_hosts(World& world);

/// One measurement of a link: messages that were sent and came back.
struct RoundTrip {
  double bytes = 0;  // of the message, each way
  double ms = 0;     // there and back
};

/// The speed from round trips of a short message and of a long one: the shortest of each.
LinkSpeed speed_of(const std::vector<RoundTrip>& short_trips, const std::vector<RoundTrip>& long_trips);

}  // namespace penstock
