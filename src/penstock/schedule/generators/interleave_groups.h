// The building blocks of interleaved 1F1B: groups of micro-batches that pass through several stages per rank. Inside
// this module only.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

/// The sizes of the groups, in micro-batches. A group passes through all chunks before the next one starts.
using Groups = std::vector<int>;

/// One micro-batch in one chunk. For forwards, chunks count from the first; for backwards from the last.
struct Pass {
  int chunk;
  MicroBatch micro_batch;
};

/// The passes of every rank, in the order of its forwards; its backwards have the same order.
std::vector<Pass> passes_of(const ScheduleShape& shape, const Groups& groups);
Instruction forward_of(const ScheduleShape& shape, Rank rank, const Pass& pass);
Instruction backward_of(const ScheduleShape& shape, Rank rank, const Pass& pass);

struct GreedyOptions {
  std::string_view name;  // of the schedule
  int most = 1;           // the upper bound of live micro-batches of chunks on a rank
};

/// Simulates all ranks at F = 1 and B = 2. A rank keeps the order of its forwards and of its backwards, and runs
/// whichever of the two next ones is ready first; if both are, it alternates. A forward waits while the rank holds
/// `most` micro-batches. None if the ranks block each other. The time is proportional to instructions x log(ranks).
std::optional<Schedule> interleave_greedily(const ScheduleShape& shape, const Groups& groups,
                                            const GreedyOptions& options);

}  // namespace penstock
