// Proof that a schedule works, or the place where it does not.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/schedule/dependencies.h"

namespace penstock {

struct ValidateOptions {
  /// The links that the model needs; by default those that the schedule itself shows.
  std::optional<Links> links;
  /// Most live micro-batch contexts per rank (a chunk counts 1); none: not validated.
  std::optional<std::vector<int>> activation_bound;
};

struct Validation {
  bool ok = false;
  std::string reason;                 // one line, empty when ok; names the instruction, the rank and what it needs
  std::optional<GridCell> cell;       // the offending instruction
  std::vector<int> peak_activations;  // most live micro-batch contexts per rank, valid when ok

  /// Throws ScheduleError with the reason and the grid, the offending cell marked, unless ok.
  void require_ok(const Schedule& schedule) const;
};

/// Validates that `schedule` is
///   complete  every stage runs F of every micro-batch once, and B once or I and W once (or neither, anywhere);
///             each on the rank that owns the stage; REDUCE, NORM and STEP at most once per stage
///   ordered   F, and the accumulation of weight gradients, in ascending micro-batch order on every stage
///   paired    every SEND has one RECV at the other end of a link, and every link that crosses ranks is served
///   live      run as it stands, it comes to an end: no deadlock
///   bounded   no rank holds more live micro-batches than the bound allows. A context lives from its F to its B,
///             or to its W where B is split
/// in time and memory linear in the number of instructions. Never throws for a bad schedule.
Validation validate(const Schedule& schedule, const ValidateOptions& options = {});

}  // namespace penstock
