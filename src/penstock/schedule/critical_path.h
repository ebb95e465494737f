// Why a simulated step takes as long as it does: the slots on which each slot depends, and the chain of slots that
// decides the makespan.
#pragma once

#include <cstddef>
#include <vector>

#include "penstock/schedule/simulate.h"

namespace penstock {

/// For each slot of a simulation with slots, the slots on which it depends, ascending. Slots are numbered over all
/// ranks, rank after rank. The slot before it on its rank is included only if it depends on it.
/// REQUIRES: `simulation` is simulate()'s for `schedule`.
std::vector<std::vector<std::size_t>> needs_of_slots(const Schedule& schedule, const Simulation& simulation);

/// A slot of the critical path.
struct CriticalSlot {
  Rank rank;
  Slot slot;
  /// True if it waits for a value of the previous slot of the path, which is on another rank; false if its rank
  /// computes that slot until it begins, and for the first slot.
  bool waits_for_message = false;

  friend bool operator==(const CriticalSlot& a, const CriticalSlot& b) {
    return a.rank == b.rank && a.slot.instruction == b.slot.instruction && a.waits_for_message == b.waits_for_message;
  }
};

/// The chain of slots that decides the makespan, first slot first: it ends with the slot that ends last, and no slot of
/// it could begin earlier unless the slot before it ended earlier. Of several chains, the one that stays on a rank.
/// REQUIRES: as needs_of_slots().
std::vector<CriticalSlot> critical_path(const Schedule& schedule, const Simulation& simulation);

}  // namespace penstock
