// What ranks agree on outside of steps: decisions that rank 0 makes by measuring, and equal settings.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/transport/tag.h"
#include "penstock/world/rank_context.h"
#include "penstock/world/world.h"

namespace penstock {

/// Reports `what` as this rank's position to its peers, because measuring takes a while.
void report_progress_of(const RankContext& context, const std::string& what);

/// Calls `decide` on world rank 0 and returns its result on every rank. Collective.
std::string decided_on_rank_0(const World& world, std::uint32_t pipeline, Topic topic,
                              const std::function<std::string(const RankContext&)>& decide);

/// Names and values that must be equal on every rank, in the same order on every rank. Values contain no line breaks.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

struct Preflight {
  std::uint32_t pipeline = 0;
  Fingerprint fingerprint;
  std::vector<std::pair<int, bool>> trainable_nodes;  // the nodes of this rank, and whether they train
  std::size_t nodes = 0;                              // number of nodes of the whole graph
};

/// Called on every rank's thread. Returns for each node of the whole graph whether it trains. Throws ConfigError on
/// every rank when a field differs, naming the field, both ranks and both values.
std::vector<bool> compare_ranks(const RankContext& context, const Preflight& preflight);

}  // namespace penstock
