// The planner: chooses partition, schedule and micro-batches for given costs. It simulates every schedule of Penstock
// and takes the one with the shortest step that fits into memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "penstock/plan/candidate.h"
#include "penstock/plan/constraints.h"
#include "penstock/plan/layer_costs.h"

namespace penstock {

/// A candidate whose step was measured.
struct ComparedCandidate {
  Candidate candidate;
  double step_ms = 0;
  bool with_fixed_kernels = false;  // LibTorch's, in place of those that the costs were measured with
};

struct Planned {
  Plan plan;
  /// Those that fit, the shortest step first; then the others, the smallest first. A plan that is not the shortest,
  /// because others were measured or are not simpler, comes first all the same.
  std::vector<Candidate> candidates;
  std::vector<Finalist> finalists;  // the plan and its rivals (plan/candidate.h), as many as were asked for
  /// The finalists whose steps were measured, if the plan was chosen by that: the first is the plan's. The planner
  /// leaves it empty.
  std::vector<ComparedCandidate> compared;
  std::vector<std::string> left_out;  // for people: schedules that could not be tried, and the reasons
  double slowdown_under_load = 1;     // LayerCosts::slowdown_under_load
  double spread = 0;                  // LayerCosts::spread
  bool is_simplest = false;           // whether the plan is the simplest within the spread, and not the shortest
  bool has_memory_cap = false;        // LayerCosts::memory_cap_bytes is set, or devices have a memory
  std::map<std::string, std::string> block_of_layer = {};  // for the layers inside of blocks
};

/// Makes the plan with the shortest predicted step for the same samples. The candidates are all combinations of a
/// generator that has backward passes, 1 to 4 chunks per rank as the generator permits, every candidate m, and weight
/// gradients in stream and fused mode (and grouped, if fused does not fit). Partitions cut no block (LayerCost::block),
/// unless there are too few; boundaries of the best three candidates then move as long as the simulated step becomes
/// shorter. Generators that adapt to costs get the costs of their partition, and memory limits of 1, 1.5 and 2 times
/// 1F1B's, up to PlanConstraints::memory_limit, and that limit.
///
/// With a cluster the candidates are also all p and d with at most as many ranks as there are devices (of more than 16:
/// those that use all, all of the faster kinds, or the largest power of two), the devices in the order of nodes that
/// suits them best, replicas beside each other or pipelines beside each other, and micro-batches of the measured size
/// or twice that. 1F1B comes first in each of these settings; the others follow from the best setting on, without the
/// settings in which even perfect balance would take longer.
///
/// The plan is the simplest (simplest_within) within LayerCosts::spread of the shortest step.
/// Among equally short steps (to nine digits, beyond which differences are rounding) the one with less memory wins,
/// then the one that comes first in generators(). Deterministic without a time limit; any thread may call it.
///
/// Throws ConfigError for unknown schedules, for those that cannot train, and for constraints that contradict each other
/// or the costs; ScheduleError if there are fewer layers than stages, and if no candidate fits: the message names the
/// smallest sufficient cap or limit.
Planned make_plan(const LayerCosts& costs, const PlanConstraints& constraints = {});

/// The prediction for a step of `plan` with the layer costs `costs`. predict(make_plan(c).plan, c) is the plan's own
/// prediction. A plan for a cluster needs that cluster, and constraints only for it: overlaps_reduction and
/// shards_optimizer. Throws ConfigError if `costs` and the plan do not name the same layers, and for a cluster without
/// the plan's devices.
Prediction predict(const Plan& plan, const LayerCosts& costs, const PlanConstraints& constraints = {});

/// The costs of the stages of `plan`, with which simulate() makes its prediction. Arguments and errors as of predict().
StageCosts stage_costs_of(const Plan& plan, const LayerCosts& costs, const PlanConstraints& constraints = {});

}  // namespace penstock
