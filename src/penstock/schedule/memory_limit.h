// Memory limits as users give them, in units of 1F1B's activations: its min(m, p) live micro-batches.
#pragma once

#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

/// The limit in live contexts per rank (a chunk counts 1; `schedule` may give its ranks different numbers of chunks),
/// at least 1.
std::vector<int> activation_limit(const Schedule& schedule, double memory_limit);

/// Throws ConfigError that says the smallest limit that would do, unless `held` contexts per rank, as validate counts
/// them, stay within activation_limit(schedule, memory_limit).
void require_within_limit(const Schedule& schedule, double memory_limit, const std::vector<int>& held);

}  // namespace penstock
