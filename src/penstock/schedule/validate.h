// Validates a schedule before it is executed: proves that it can run to its end, or reports the first violation.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "penstock/schedule/dependencies.h"

namespace penstock {

struct ValidateOptions {
  /// The links that the model needs; by default links_of(schedule).
  std::optional<Links> links;
  /// The upper bound of live micro-batches per rank (a micro-batch counts once for each chunk); none: no bound.
  std::optional<std::vector<int>> activation_bound;
  /// The number of posts per channel (schedule/channel.h), at least 1; none: messages are stored without limit. Only a
  /// lowered schedule has messages: any other one is refused.
  std::optional<int> posts = {};
};

struct Validation {
  bool ok = false;
  std::string reason;                 // one line; names the instruction, the rank and what it needs; empty if ok
  std::optional<GridCell> cell;       // the offending instruction, if the violation has one
  std::vector<int> peak_activations;  // the peak of live micro-batches per rank; empty unless ok

  /// Throws ScheduleError unless ok. The message has the reason and the timeline grid with the offending cell marked.
  void require_ok(const Schedule& schedule) const;
};

/// Validates that `schedule` is
///   complete  every stage runs F of every micro-batch once, and either B once or I and W once (a forward-only schedule
///             has none of them); each on the rank that owns the stage; REDUCE, NORM and STEP at most once per stage
///   ordered   every stage runs F and accumulates weight gradients in ascending micro-batch order
///   paired    every SEND has one RECV at the other end of its link, and every link that crosses ranks has its messages
///   live      the lists, executed in order, come to their ends: no deadlock. With ValidateOptions::posts that is
///             proven for a rendezvous of sends and receives too, with that many posts per channel
///   bounded   no rank exceeds the activation bound. A micro-batch is live from its F to its B, or to its W if B is
///             split
/// Time and memory are linear in the number of instructions. Does not throw for an invalid schedule.
Validation validate(const Schedule& schedule, const ValidateOptions& options = {});

}  // namespace penstock
