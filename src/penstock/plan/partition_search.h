// Searches the optimal partition of a list of layers into stages, for any number of stages per rank. The caller defines
// the cost of a partition.
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

/// A cost of one rank. `stages` are the layers of the rank's stages, ascending.
using RankCost = std::function<double(Rank rank, std::span<const LayerRange> stages)>;

/// Minimise the cost of the most expensive rank.
struct PartitionProblem {
  int layers = 0;
  std::vector<Rank> rank_of_stage;
  std::vector<int> begins = {};  // possible_begins(); empty: every layer
  /// The cost of all stages of a rank together; infinity if they are forbidden.
  RankCost cost;
  /// A lower bound of `cost` when `stages` are the first few stages of the rank, or all of them. It must not decrease
  /// when a range grows.
  RankCost least;
  /// Shares of ranges of layers: in every partition, the sum of the costs of all ranks is at least the sum of the
  /// shares of all stages.
  std::function<double(LayerRange)> share;
};

struct FoundPartition {
  Stages stages;
  double cost = 0;    // of the most expensive rank
  bool exact = true;  // false: the search was incomplete, and this is the best partition that it found
};

/// The cheapest partition; none if there are fewer layers than stages or all partitions are forbidden.
///
/// The search is exact for placements that consist of waves, in which p consecutive stages go through the ranks in
/// order or in reverse (one stage per rank, interleaved and V placements), for up to 4 stages per rank, and within
/// `work` evaluations of a cost. It proceeds rank by rank; the state is the progress of each wave. For one stage per
/// rank this is the classical dynamic programme over (rank, layer) with at most p*n*n/2 steps; every further wave
/// multiplies the steps by up to n*n (n*n*n if two waves have the same direction). Partial partitions that cannot beat
/// the best known one are dropped, which in practice leaves few. In all other cases the result is the best partition
/// found, improved by moving single layers between neighbouring stages.
/// `known` has partitions to start from. Deterministic. The functions of `problem` are called in the calling thread.
std::optional<FoundPartition> cheapest_partition(const PartitionProblem& problem, const std::vector<Stages>& known = {},
                                                 std::int64_t work = std::int64_t{1} << 17);

}  // namespace penstock
