// The schedule "auto": chooses a schedule and a partition by measured times.
#pragma once

#include <optional>
#include <string>

#include "penstock/autotune/profile.h"
#include "penstock/autotune/step_comparison.h"
#include "penstock/plan/planner.h"

namespace penstock {

/// Decided options and their reasons.
struct AutoChoice {
  PipelineOptions options;
  std::optional<Plan> plan = {};        // of the schedule "auto"
  std::optional<Planned> planned = {};  // its candidates, where they were measured now
  /// One line for people: where the decision comes from. Empty where nothing was left to measuring, and on processes
  /// other than the main one.
  std::string origin = {};
};

struct ChooseOptions {
  ProfileOptions profile = {};  // slowdown_under_load is ignored; all values of m share passes_ms
  ComparisonOptions comparison = {};
};

/// The schedule "auto": profile(), then make_plan() for the ranks and micro-batches of `options`; with 0
/// micro-batches, for m = p, 2p, 4p and 8p, as far as the samples suffice, each profiled. Then the steps of the
/// finalists are measured in interleaved runs, in pipelines of their own. Annotations fix the partition,
/// PipelineOptions::chunks the stages per rank; memory_limit leaves out the schedules above it. With a limit in bytes,
/// finalists whose measured activations exceed it are dropped (and others planned where that leaves none), and the
/// options' costs have the activation_bytes of the choice. World rank 0's times decide for all. Collective. Throws as
/// profile() and make_plan(), and ConfigError for a partition that is neither "parameters", the default, nor "time"
/// unless annotations replace it.
AutoChoice choose_by_profile(World& world, Cell& network, const Loss& loss, const PipelineOptions& options,
                             const ChooseOptions& how = {});

/// What the planner may choose for `options`: the constraints of its weight gradients, chunks, memory limit and
/// annotations.
PlanConstraints constraints_of(const World& world, Cell& network, const PipelineOptions& options);

/// `options` of the schedule "auto" with the decision: `partition` as PipelineOptions has it, and `plan`, which was
/// made from `costs`.
PipelineOptions decided_options(PipelineOptions options, std::string partition, const Plan& plan,
                                const LayerCosts& costs);

}  // namespace penstock
