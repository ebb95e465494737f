// Compares the steps of a few candidates by measuring them in turns.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "penstock/world/world.h"

namespace penstock {

/// Limits of a comparison.
struct ComparisonOptions {
  int finalists = 6;        // candidates whose steps are measured, at most; 1: the prediction decides
  double budget_ms = 8000;  // no further turn begins after this time; there are at least two
};

struct StepComparison {
  std::size_t best = 0;
  std::vector<double> step_ms;  // of each candidate
};

/// Measures `count` candidates, the predicted best first. `measure(i)` runs a few steps of candidate i and returns
/// their times in ms; all processes call it in the same order. The candidates take turns, in reverse order in every
/// second one, because the speed of a shared machine changes within seconds. The time of a candidate is the lower
/// quartile of its steps: what else runs on the machine makes some of them longer. Those that are clearly longer than
/// the shortest leave after each turn: by 15 % after the first, down to 3 %. The best is the first of those that are at
/// most 1 % longer than the shortest. World rank 0's times decide for all. Collective.
StepComparison compare_steps(World& world, std::size_t count, const ComparisonOptions& how,
                             const std::function<std::vector<double>(std::size_t)>& measure);

}  // namespace penstock
