// The planner: chooses partition, schedule and micro-batches for given costs. It simulates every schedule of Penstock
// and takes the one with the shortest step that fits into memory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/plan_file.h"

namespace penstock {

/// The upper bound of chunks per rank in candidates, and of stages per rank when stages are timed.
inline constexpr int most_chunks = 4;

/// One schedule with the best partition for it.
struct Candidate {
  std::string schedule;
  int chunks = 1;                           // v
  int micro_batches = 1;                    // m
  std::optional<double> memory_limit = {};  // Tuning::memory_limit, for generators that adapt to it
  WeightMode weight_gradients = WeightMode::stream;
  PartitionKind partition = PartitionKind::time;
  bool is_exact = true;  // false: the search for the partition was incomplete (FoundPartition::exact)
  bool fits = true;      // into the memory cap
  /// If the candidate does not fit, only memory_bytes is set, for the partition that needs the least memory.
  Prediction prediction;
};

struct PlanConstraints {
  std::vector<std::string> schedules;          // names of generators; empty: all that have backward passes
  std::optional<WeightMode> weight_gradients;  // stream or fused; none: both
};

struct Planned {
  Plan plan;
  std::vector<Candidate> candidates;  // those that fit, the shortest step first; then the others, the smallest first
  std::vector<std::string> left_out;  // for people: schedules that could not be tried, and the reasons
  double slowdown_under_load = 1;     // LayerCosts::slowdown_under_load
};

/// Makes the plan with the shortest predicted step. The candidates are all combinations of a generator that has
/// backward passes, 1 to 4 chunks per rank as the generator permits, every candidate m, and weight gradients in stream
/// and fused mode (and grouped, if fused does not fit). Generators that adapt to costs get those of their partition,
/// and memory limits of 1, 1.5 and 2. Among equally short steps (to nine digits, beyond which differences are rounding)
/// the one with less memory wins, then the one that comes first in generators(). Deterministic; any thread may call it.
///
/// Throws ConfigError for unknown and forward-only schedules; ScheduleError if there are fewer layers than ranks, and
/// if no candidate fits: the message names the smallest sufficient cap.
Planned make_plan(const LayerCosts& costs, const PlanConstraints& constraints = {});

/// The prediction for a step of `plan` with the layer costs `costs`. predict(make_plan(c).plan, c) is the plan's own
/// prediction. Throws ConfigError if the names of the layers in `costs` are not those of the plan.
Prediction predict(const Plan& plan, const LayerCosts& costs);

}  // namespace penstock
