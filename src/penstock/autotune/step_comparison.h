// Compares the steps of a few candidates by measuring them in interleaved runs.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "penstock/world/world.h"

namespace penstock {

/// Limits of a comparison.
struct ComparisonOptions {
  int finalists = 6;         // candidates whose steps are measured, at most; 1: the prediction decides
  double budget_ms = 12000;  // no further round begins after this time; there are at least five
};

struct StepComparison {
  std::size_t best = 0;
  std::vector<double> step_ms;  // of each candidate's shortest round
};

/// Measures `count` candidates, the predicted best first. `measure(i)` runs a few steps of candidate i and returns
/// their times in ms; all processes call it in the same order. In each round every candidate runs once, in reverse
/// order in every second round; its time in a round is the lower quartile of its steps. Other programs on the machine
/// make steps longer and never shorter, so that two candidates are compared by their shortest rounds. After each round
/// those leave that are clearly longer than the shortest: twice as long in the first round, by 10 % in both of the
/// first two, down to 3 % in half of all; but where rounds of one candidate differ by 15 %, none leaves before the
/// fifth unless it is twice as long. Of those that are left the predicted best is taken, unless another one is shorter
/// by more than 1 %. World rank 0's times decide for all. Collective.
StepComparison compare_steps(World& world, std::size_t count, const ComparisonOptions& how,
                             const std::function<std::vector<double>(std::size_t)>& measure);

}  // namespace penstock
