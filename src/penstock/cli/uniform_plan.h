// `penstock plan --layers N --stages P --chunks V`: the layers of each rank for layers of equal cost.
#pragma once

#include <string>

namespace penstock {

struct UniformPlan {
  int layers = 0;  // N; the output numbers them from 1
  int ranks = 0;   // P
  int chunks = 1;  // V, stages per rank, placed as in the schedule `interleaved`
};

/// One line per rank: its stages and its layers in a uniform partition. Throws ConfigError for numbers below 1 and for
/// fewer layers than stages.
std::string uniform_plan_text(const UniformPlan& plan);
/// The same as JSON.
std::string uniform_plan_json(const UniformPlan& plan);

}  // namespace penstock
