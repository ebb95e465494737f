// The exact partition of a list of layers into stages, for any number of stages per rank: the search alone. What a partition costs
// is the caller's to say.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "penstock/base/ids.h"

namespace penstock {

/// The layers begin..end-1.
struct LayerRange {
  int begin = 0;
  int end = 0;

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// One range per stage, in order, none empty.
using Stages = std::vector<LayerRange>;

/// `stages` are those of one rank, ascending, or the first few of them.
using RankCost = std::function<double(Rank rank, std::span<const LayerRange> stages)>;

/// Partition the layers so that the dearest rank is as cheap as can be.
struct PartitionProblem {
  int layers = 0;
  std::vector<Rank> rank_of_stage;
  /// What all stages of a rank cost together; infinity where they may not be.
  RankCost cost;
  /// At most `price`, also of the first few stages, and never less when a range grows.
  RankCost least;
  /// The costs of all ranks sum up to at least the shares of all ranges, however they are partitioned.
  std::function<double(LayerRange)> share;
};

struct FoundPartition {
  Stages stages;
  double cost = 0;    // of the dearest rank
  bool exact = true;  // false: the search was given up, and this is the best that was found
};

/// The cheapest partition, or none when there are fewer layers than stages or every one is forbidden.
///
/// Exact where each wave of stages, one per rank, goes through the ranks in order or in reverse (one stage per rank,
/// interleaved and V placements), for up to 4 stages per rank, within `work` evaluations of a cost. It goes rank by
/// rank; the state is how far each wave has come. For one stage per rank that is the classical dynamic programme over
/// (rank, layer), of p*n*n/2 steps at most; every further wave multiplies that by up to n*n (n*n*n where two waves go
/// the same way). Partial partitions that cannot beat the best one known are dropped, which in practice leaves few.
/// Beyond that: the best of what was found and what moving single layers between neighbours improves.
/// `known`: partitions to start from. Deterministic.
std::optional<FoundPartition> cheapest_partition(const PartitionProblem& problem, const std::vector<Stages>& known = {},
                                                 std::int64_t work = std::int64_t{1} << 22);

}  // namespace penstock
