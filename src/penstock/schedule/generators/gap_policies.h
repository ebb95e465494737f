// The policies that zb-auto tries. Inside this module only.
#pragma once

#include <vector>

#include "penstock/schedule/generators/fill_gaps.h"

namespace penstock {

/// The policies for `problem`: every warm-up with every treatment of short gaps, some hundreds in all.
///
///   warm-up      grows from the last stage to the first: by 1, 1.25, 1.5, 1.75 or 2 forwards per stage, by as many
///                forwards as fit in before the first gradient arrives, or evenly up to the number that fills the
///                memory; rounded down, to the nearest or up. The memory limits it on every stage
///   short gaps   while forwards remain: an allowance of 0, 1 or 1.5 times the gap that this warm-up leaves before the
///                first I of the worst stage. After that: the same allowances, an unlimited one, or one that is
///                unlimited only for the last 1, 2 or 4 I's
///
/// The best warm-up depends on costs and memory. The best allowance depends on whether idle time or a late last
/// gradient determines the span. For more than 2^17 instructions there are at most 36 policies: those that are best
/// most often.
std::vector<GapPolicy> gap_policies(const GapProblem& problem);

}  // namespace penstock
