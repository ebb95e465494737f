// What a schedule does against costs, told in the instructions and figures that all its pictures share. Inside this module only.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "penstock/schedule/simulate.h"

namespace penstock {

/// A schedule beside its simulation, with the time of every instruction.
struct Simulated {
  const Schedule& schedule;  // must outlive this
  Simulation simulation;

  Simulated(const Schedule& simulated, const Costs& costs)
      : schedule(simulated), simulation(simulate(simulated, costs, {.links = {}, .keep_slots = true})) {}

  std::size_t slot_count() const;
  double first_begin() const;  // of all slots: time 0 of a picture

  /// "1f1b: p = 4, v = 1, m = 8".
  std::string title() const;
  /// Makespan, bubbles and peak activations, in one line.
  std::string figures() const;
};

/// "F = 1, I = 1, W = 1", and what else is not as in Costs::unit(); stages' own costs as a range.
std::string told(const Costs& costs);

/// For each slot, of all ranks' slots one after the other: the slots that had to be done before it, ascending. What
/// stands before it on its rank is not among them, unless it is needed.
std::vector<std::vector<std::size_t>> needs_of_slots(const Simulated& simulated);

/// The slots that are drawn inside one frame: the two halves of each overlap pair of one rank's slots.
std::vector<std::pair<std::size_t, std::size_t>> overlap_pairs(const std::vector<Slot>& slots);

}  // namespace penstock
