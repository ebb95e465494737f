// Several stages per rank, group after group of micro-batches: what interleaved 1F1B is made of. Inside this module only.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "penstock/schedule/generators/placement.h"

namespace penstock {

/// Micro-batches per group, in their order. A group goes through all chunks before the next one starts.
using Groups = std::vector<int>;

/// Which chunk of which micro-batch, in the order of the forwards. For backwards the chunks count from the last.
struct Turn {
  int chunk;
  MicroBatch micro_batch;
};

std::vector<Turn> turns_of(const ScheduleShape& shape, const Groups& groups);
Instruction forward_of(const ScheduleShape& shape, Rank rank, const Turn& turn);
Instruction backward_of(const ScheduleShape& shape, Rank rank, const Turn& turn);

struct RaceOptions {
  std::string_view name;  // of the schedule
  int most = 1;           // live micro-batches of chunks on a rank
};

/// All ranks against the clock, at F = 1 and B = 2: each keeps the order of its forwards and that of its backwards,
/// runs whichever is ready first and takes turns where both are; no forward beyond the memory. None where that ends
/// before all is done. In time instructions x log(ranks).
std::optional<Schedule> race(const ScheduleShape& shape, const Groups& groups, const RaceOptions& options);

}  // namespace penstock
