// `penstock plan --layers N --stages P --chunks V`: who has which layers, where nothing is known about their costs.
#pragma once

#include <string>

namespace penstock {

struct UniformPlan {
  int layers = 0;  // N, numbered from 1 in what is shown
  int ranks = 0;   // P
  int chunks = 1;  // V, stages per rank, as the schedule `interleaved` places them
};

/// One line per rank: its stages and its layers under a uniform partition. Throws ConfigError for numbers below 1, and
/// where there are fewer layers than stages.
std::string uniform_plan_text(const UniformPlan& plan);
/// The same for machines.
std::string uniform_plan_json(const UniformPlan& plan);

}  // namespace penstock
