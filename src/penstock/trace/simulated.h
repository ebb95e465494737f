// The simulation of a schedule and its texts, which all pictures share. Inside this module only.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "penstock/schedule/simulate.h"

namespace penstock {

/// A schedule and its simulation, with the time of every instruction. The constructor throws like simulate().
struct Simulated {
  const Schedule& schedule;  // must outlive this
  Simulation simulation;

  Simulated(const Schedule& simulated, const StageCosts& costs)
      : schedule(simulated), simulation(simulate(simulated, costs, {.links = {}, .keep_slots = true})) {}

  std::size_t slot_count() const;
  double first_begin() const;  // the first begin of all slots, which is time 0 of a picture

  /// "1f1b: p = 4, v = 1, m = 8".
  std::string title() const;
  /// Makespan, bubbles and peak activations, in one line.
  std::string figures() const;
};

/// "F = 1, I = 1, W = 1", and all other costs that differ from StageCosts::unit(). Costs that differ by stage are shown
/// as a range.
std::string described(const StageCosts& costs);

/// For each slot, the slots on which it depends, ascending. Slots are numbered over all ranks, rank after rank. The
/// slot before it on its rank is included only if it depends on it.
std::vector<std::vector<std::size_t>> needs_of_slots(const Simulated& simulated);

/// The two halves of each overlap pair among the slots of one rank, which are drawn inside one frame.
std::vector<std::pair<std::size_t, std::size_t>> overlap_pairs(const std::vector<Slot>& slots);

}  // namespace penstock
