// Memory limits as users give them: multiples of the activations of 1F1B, which holds min(m, p) live micro-batches.
#pragma once

#include <vector>

#include "penstock/schedule/order.h"

namespace penstock {

/// Throws ConfigError for a limit that is not positive and finite.
void require_memory_limit(double memory_limit);

/// The limit as a number of live micro-batches per rank, at least 1. A micro-batch counts once for each chunk; the
/// ranks of `schedule` may have different numbers of chunks. Throws like require_memory_limit().
std::vector<int> activation_limit(const Schedule& schedule, double memory_limit);

/// Whether `held`, the live micro-batches per rank (Validation::peak_activations), stay within
/// activation_limit(schedule, memory_limit).
bool is_within_limit(const Schedule& schedule, double memory_limit, const std::vector<int>& held);

/// The smallest memory limit within which `held` stay, rounded up to three decimals.
double needed_memory_limit(const Schedule& schedule, const std::vector<int>& held);

/// Throws ConfigError, which names the smallest sufficient limit, unless is_within_limit().
void require_within_limit(const Schedule& schedule, double memory_limit, const std::vector<int>& held);

}  // namespace penstock
