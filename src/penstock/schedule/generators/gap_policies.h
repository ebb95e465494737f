// What zb-auto tries. Inside this module only.
#pragma once

#include <vector>

#include "penstock/schedule/generators/fill_gaps.h"

namespace penstock {

/// The policies for `problem`: every warm-up with every treatment of short gaps, some hundreds in all.
///
///   warm-up      grows from the last stage to the first: by 1, 1.25, 1.5, 1.75 or 2 forwards per stage, by as many as
///                the first gradient takes to come, or evenly up to what fills the memory; rounded down, to the nearest
///                or up. No stage's is longer than memory admits
///   short gaps   as long as there are forwards: an allowance of 0, 1 or 1.5 times the gap that this warm-up leaves
///                before the first I of the worst stage. After that: the same ones, one without end, or one without end
///                for the last 1, 2 or 4 I's alone
///
/// The best warm-up depends on costs and memory; the best allowance on whether a rank's idle time or a late last
/// gradient makes the span. Beyond 2^17 instructions there are 36 at most: those that win most often.
std::vector<GapPolicy> gap_policies(const GapProblem& problem);

}  // namespace penstock
