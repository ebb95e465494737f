// The schedule "auto": chooses a schedule and a partition by measured times.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/autotune/autotune_options.h"
#include "penstock/plan/planner.h"
#include "penstock/rank/options.h"

namespace penstock {

class Cell;
class World;

struct StepComparison {
  std::size_t best = 0;
  std::vector<double> step_ms;  // of each candidate's shortest round; 0 if it was not measured
};

/// Measures `count` candidates, the predicted best first. `measure(i)` runs a few steps of candidate i and returns
/// their times in ms; all processes call it in the same order. In each round every candidate runs once, in reverse
/// order in every second round; its time in a round is the lower quartile of its steps. Other programs on the machine
/// make steps longer and never shorter, so that two candidates are compared by their shortest rounds. After each round
/// those leave that are clearly longer than the shortest: twice as long in the first round, by 10 % in both of the
/// first two, down to 3 % in half of all; but where rounds of one candidate differ by 15 %, none leaves before the
/// fifth unless it is twice as long. Of those that are left the predicted best is taken, unless another one is shorter
/// by more than 1 %; after a single round, 3 %. World rank 0's times decide for all. Collective.
StepComparison compare_steps(World& world, std::size_t count, const ComparisonOptions& how,
                             const std::function<std::vector<double>(std::size_t)>& measure);

/// Decided options and their reasons.
struct AutoChoice {
  PipelineOptions options;
  std::optional<Plan> plan = {};         // of the schedule "auto"
  std::optional<LayerCosts> costs = {};  // from which it was made; note_costs() adds them to a trace
  std::optional<Planned> planned = {};   // its candidates, if they were measured now
  /// One line for people: where the decision comes from. Empty where nothing was left to measuring, and on processes
  /// other than the main one.
  std::string origin = {};
};

/// The schedule "auto": profile(), unless the costs of layers are given, then make_plan() for the ranks and
/// micro-batches of `options`; with 0 micro-batches, for m = p, 2p, 4p and 8p, as far as the samples suffice, each
/// profiled. Then the steps of the finalists are measured in interleaved runs, in pipelines of their own. Annotations
/// fix the partition, PipelineOptions::chunks the stages per rank; memory_limit leaves out the schedules above it. With
/// a limit in bytes, finalists whose measured activations exceed it are dropped (and others planned where that leaves
/// none), and the options' costs have the activation_bytes of the choice. World rank 0's times decide for all.
/// Collective. Throws as profile() and make_plan(), and ConfigError for given costs of another number of ranks, and for
/// a partition that is neither "parameters", the default, nor "time"
/// unless annotations replace it.
AutoChoice choose_by_profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                             const AutotuneOptions& how);

/// What the planner may choose for `options`: the constraints of its weight gradients, chunks, memory limit and
/// annotations, and AutotuneOptions::cluster. Throws as read_cluster(), and ConfigError for a cluster with fewer devices
/// than the world has ranks.
PlanConstraints constraints_of(const World& world, Cell& network, const PipelineOptions& options,
                               const std::string& cluster);

/// `options` of the schedule "auto" with the decision: `partition` as PipelineOptions has it, and `plan`.
PipelineOptions decided_options(PipelineOptions options, std::string partition, const Plan& plan);

}  // namespace penstock
