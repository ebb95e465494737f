// Costs in; partition, schedule and prediction out. Every schedule that Penstock knows is tried against the costs, and the
// one with the shortest step that fits into memory is taken.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/plan_file.h"

namespace penstock {

/// Per rank, in what is tried; and where small stages are timed.
inline constexpr int most_chunks = 4;

/// One schedule against the costs, with the best partition for it.
struct Candidate {
  std::string schedule;
  int chunks = 1;                           // v
  int micro_batches = 1;                    // m
  std::optional<double> memory_limit = {};  // in units of 1F1B's activations, of generators that adapt to one
  WeightMode weight_gradients = WeightMode::stream;
  PartitionKind partition = PartitionKind::time;
  bool is_exact = true;  // false: the search for the partition was too long, and stopped at the best it had found
  bool fits = true;      // into the memory cap
  /// Where it does not fit, only memory_bytes is filled in: those of the smallest fullest rank that any partition gives.
  Prediction prediction;
};

struct PlanConstraints {
  std::vector<std::string> schedules;          // names of generators; empty: all that train
  std::optional<WeightMode> weight_gradients;  // stream or fused; none: both are tried
};

struct Planned {
  Plan plan;
  std::vector<Candidate> candidates;  // the shortest step first, then what does not fit, the nearest first
  std::vector<std::string> left_out;  // what could not be tried, and why
  double slowdown_under_load = 1;     // LayerCosts::slowdown_under_load
};

/// Tries every generator that trains, with 1 to 4 chunks per rank where it takes them, every candidate m, and weight
/// gradients in stream and fused (grouped where the whole step does not fit). Generators that adapt to costs get those
/// of their partition, with 1, 1.5 and 2 times the activations of 1F1B. Of equally short steps (to nine digits: the rest is
/// rounding) the one with less memory wins, then the one that comes first in generators(). Deterministic.
///
/// Throws ConfigError for unknown schedules and those that only go forward; ScheduleError when there are fewer layers than
/// ranks, and when nothing fits: the message says the smallest cap that would do.
Planned make_plan(const LayerCosts& costs, const PlanConstraints& constraints = {});

/// What the step of `plan` costs when layers cost this: predict(make_plan(c).plan, c) is the plan's own prediction.
/// Throws ConfigError where `costs` have other layers, or fewer or more of them.
Prediction predict(const Plan& plan, const LayerCosts& costs);

}  // namespace penstock
