// Decisions from measurements: times differ from rank to rank, so world rank 0 measures and decides for all ranks.
#pragma once

#include <functional>
#include <string>

#include "penstock/world/world.h"

namespace penstock {

/// Reports `what` as this rank's position to its peers, because measuring takes a while.
void report_progress_of(const RankContext& context, const std::string& what);

/// Calls `decide` on world rank 0 and returns its result on every rank. Collective.
std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide);

}  // namespace penstock
