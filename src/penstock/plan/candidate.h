// What the planner tries: candidates, and the ones whose steps are worth measuring.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "penstock/plan/partition.h"
#include "penstock/plan/plan_file.h"
#include "penstock/schedule/memory_limit.h"

namespace penstock {

/// One schedule with the best partition for it.
struct Candidate {
  std::string schedule;
  int chunks = 1;                                // v
  int micro_batches = 1;                         // m, of one replica
  int ranks = 1;                                 // p
  int replicas = 1;                              // d
  std::optional<MemoryLimit> memory_limit = {};  // Tuning::memory_limit, for generators that adapt to it
  WeightGradients weight_gradients = WeightGradients::stream;
  PartitionKind partition = PartitionKind::time;
  bool is_exact = true;                   // false: the search for the partition was incomplete (FoundPartition::exact)
  bool fits = true;                       // into the memory of each rank and the memory limit
  std::vector<std::string> stages = {};   // the first layer of each stage
  std::vector<std::string> devices = {};  // as Plan::devices
  std::vector<std::string> recomputed = {};  // blocks, and layers outside of blocks
  /// With PlanConstraints::memory_limit: the smallest limit in its unit into which the candidate fits.
  std::optional<MemoryLimit> needed_limit = {};
  /// If the candidate does not fit, only memory_bytes is set, for the partition that needs the least memory.
  Prediction prediction;
};

/// The index of the simplest of the candidates that have the p, d and m of the first, the shortest, and take at most
/// 1 + `share` times its step: fewest chunks, then a W per micro-batch, then the shortest. The first for a share of 0.
std::size_t simplest_within(std::span<const Candidate> candidates, double share);

/// A candidate with its plan.
struct Finalist {
  Candidate candidate;
  Plan plan;
};

/// Up to `most` of `candidates`, which are sorted as Planned::candidates are. No two of them agree in schedule, chunks,
/// m and mode of weight gradients, or in instructions and partition. They are the first; the best one with streamed,
/// and the best one with fused or grouped weight gradients, and the schedule of the first in the other of these modes,
/// unless they are predicted to take 50 % longer; then those that are predicted to take at most 10 % longer, the
/// shortest first. Predictions are accurate to 10 %; the times of weight gradients are their least certain parts.
/// Returns their indices in this order. `plan_of(i)` makes the plan of candidate i; it is called for few of them.
std::vector<std::size_t> finalists_of(std::span<const Candidate> candidates, int most,
                                      const std::function<Plan(std::size_t)>& plan_of);

}  // namespace penstock
