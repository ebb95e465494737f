// What is measured on world rank 0 and holds for all: a time differs from rank to rank, a decision may not.
#pragma once

#include <functional>
#include <string>

#include "penstock/world/world.h"

namespace penstock {

/// Shows on the other ranks that this one is alive and at `what`: measuring takes a while.
void report_progress_of(const RankContext& context, const std::string& what);

enum class Topic : std::int32_t { kernels, partition, layer_times };

/// Calls `decide` on world rank 0 and returns what it says, on every rank. Collective.
std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide);

}  // namespace penstock
