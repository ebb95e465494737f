// Before the first step: the ranks compare what they are about to do, and pool what each of them knows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "penstock/world/rank_context.h"

namespace penstock {

/// What must be equal on every rank, field by field, in an order that is the same on every rank.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

struct Preflight {
  std::uint32_t pipeline = 0;
  Fingerprint fingerprint;
  std::vector<std::pair<int, bool>> trainable_nodes;  // those of this rank
  std::size_t nodes = 0;                              // of the whole graph
};

/// Called on every rank's thread. Returns which nodes train, of the whole graph. Throws ConfigError on every rank when
/// a field differs, naming the field, both ranks and both values.
std::vector<bool> compare_ranks(const RankContext& context, const Preflight& preflight);

}  // namespace penstock
