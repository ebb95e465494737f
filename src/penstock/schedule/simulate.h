// How long a schedule takes and what it holds, against costs.
//
// The model: a compute instruction starts when its rank is free and what it needs has arrived; a message takes C and
// occupies no rank; hand-over on one rank takes nothing. B takes I + W, or what the costs say of it.
//
// A W over g of m micro-batches takes what lies between g single ones (w each) and one over all (u per micro-batch):
// g * u + (w - u) * (m - g) / (m - 1), a part for each micro-batch and a part that every W pays once.
// An instruction that follows another of its stage on its rank is spared what the cache keeps (Costs::forward_cache_saving and the
// like), at most all.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "penstock/schedule/costs.h"
#include "penstock/schedule/dependencies.h"

namespace penstock {

/// When one instruction ran.
struct Slot {
  Instruction instruction;
  double begin = 0;
  double end = 0;
};

constexpr double largest_time_variation = 1;

struct SimulateOptions {
  std::optional<Links> links;  // as for validate
  bool keep_slots = false;     // fill Simulation::slots
  /// How much an instruction's time varies: the standard deviation of a compute instruction's time as a part of it, each instruction by
  /// itself; a W over g micro-batches varies by 1/sqrt(g) of that. Above 0, makespan, span and bubbles are means over a
  /// few runs with such instructions (always the same ones): a rank that waits for another waits for the slower of two times,
  /// so steps grow with it. Slots and busy times stay those of instructions that take their costs.
  double time_variation = 0;
};

struct Simulation {
  double makespan = 0;  // first start anywhere to last end anywhere
  double span = 0;      // longest of the ranks' own first start to last end (the Zero Bubble paper's cost)
  /// Idle share of rank time: 1 - sum of busy / (p * cost), with the makespan or the span as the cost.
  /// For equal stages this is the papers' (cost - m(F+B)) / cost.
  double bubble_makespan = 0;
  double bubble_span = 0;
  std::vector<double> busy;  // per rank: sum of its compute and update times
  /// Per rank, the most activation memory, in micro-batches of a whole rank (a chunk counts 1/v): one counts 1 from its
  /// F to its B or I, and Costs::weight_share from its I to its W.
  std::vector<double> peak_activations;
  std::vector<int> peak_contexts;        // per rank, as validate counts: a chunk's micro-batch is one until its B or W
  std::vector<std::vector<Slot>> slots;  // per rank, compute and STEP instructions with their times, if asked for
};

/// Runs `schedule`, lowered or not (both give the same figures), against `costs`. Linear in the instructions. Where
/// training instructions are not lowered, a stage's update follows the instruction that completes its gradients; it has no slot.
/// Throws ScheduleError when it deadlocks (validate tells where) and ConfigError for cost lists of a wrong length.
Simulation simulate(const Schedule& schedule, const Costs& costs, const SimulateOptions& options = {});

}  // namespace penstock
