// What the planner tries: candidates, and those of them that are worth measuring.
#pragma once

#include <optional>
#include <string>

#include "penstock/plan/partition.h"
#include "penstock/plan/plan_file.h"
#include "penstock/schedule/memory_limit.h"

namespace penstock {

/// One schedule with the best partition for it.
struct Candidate {
  std::string schedule;
  int chunks = 1;                                // v
  int micro_batches = 1;                         // m
  std::optional<MemoryLimit> memory_limit = {};  // Tuning::memory_limit, for generators that adapt to it
  WeightGradients weight_gradients = WeightGradients::stream;
  PartitionKind partition = PartitionKind::time;
  bool is_exact = true;  // false: the search for the partition was incomplete (FoundPartition::exact)
  bool fits = true;      // into the memory cap and the memory limit
  /// With PlanConstraints::memory_limit: the smallest limit in its unit into which the candidate fits.
  std::optional<MemoryLimit> needed_limit = {};
  /// If the candidate does not fit, only memory_bytes is set, for the partition that needs the least memory.
  Prediction prediction;
};

/// A candidate with its plan.
struct Finalist {
  Candidate candidate;
  Plan plan;
};

}  // namespace penstock
