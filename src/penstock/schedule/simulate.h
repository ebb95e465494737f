// Simulates a schedule with given costs: its time, its idle time and its live activations.
//
// The model: a compute instruction starts when its rank is free and its inputs have arrived. A message takes C from the
// moment at which the link to its receiver is free, and occupies that link for its gap (MessageCost), and the rank that
// sends it for StepTerms::send_share. Passing a value between stages of one rank takes no time. B takes
// StageCosts::backward, or I + W if that is empty. A stage's gradients are summed over its replicas when they are
// complete, on the rank, or on its link to the replicas (StageCosts::reduce); the update of the stage waits for it.
//
// A W over g of m micro-batches is interpolated between g single W's (w each) and one W over all (u per micro-batch):
// g * u + (w - u) * (m - g) / (m - 1). The first term grows with g; the second one is what every W pays once.
// An instruction that directly follows another one of its stage on its rank takes less by
// StageCosts::forward_cache_saving and the like, but never less than 0.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/schedule/dependencies.h"
#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// The times of one instruction, in the unit of the costs.
struct Slot {
  Instruction instruction;
  double begin = 0;
  double end = 0;
};

struct SimulateOptions {
  std::optional<Links> links;  // the links that the model needs; by default links_of(schedule)
  bool keep_slots = false;     // fill Simulation::slots
};

/// The result of simulate(). Times are in the unit of the costs.
struct Simulation {
  double makespan = 0;  // from the first start on any rank to the last end on any rank
  double span = 0;      // the longest time of a rank from its own first start to its own last end (Zero Bubble's cost)
  /// The idle share of rank time, 1 - sum of busy / (p * cost); the cost is the makespan or the span. For equal
  /// stages this is (cost - m(F+B)) / cost, as in the papers.
  double bubble_makespan = 0;
  double bubble_span = 0;
  std::vector<double> busy;  // per rank: the sum of its compute and update times
  /// Per rank, the peak of live activations, in micro-batches of a whole rank (a chunk counts 1/v). A micro-batch
  /// counts 1 from its F to its B or I, and StageCosts::weight_share from its I to its W.
  std::vector<double> peak_activations;
  std::vector<int> peak_contexts;        // per rank, counted as Validation::peak_activations
  std::vector<std::vector<Slot>> slots;  // per rank: compute and STEP instructions; empty without keep_slots
};

/// Simulates `schedule` with `costs`. The results are the same for a lowered schedule and for one that is not: without
/// STEP instructions, the update of a stage follows the instruction that completes its gradients, and has no slot. The
/// time is linear in the number of instructions.
/// Throws ScheduleError if the schedule is incomplete or deadlocks (validate() reports the place) and ConfigError for
/// costs that require_costs_fit() refuses.
Simulation simulate(const Schedule& schedule, const StageCosts& costs, const SimulateOptions& options = {});

/// Simulation::peak_activations of a complete schedule, for this StageCosts::weight_share: the order of each rank
/// decides about them, and no times.
std::vector<double> peak_activations(const Schedule& schedule, double weight_share);

}  // namespace penstock
