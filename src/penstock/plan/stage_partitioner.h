// The partitions that the planner tries. Inside this module only.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "penstock/plan/layer_sums.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/partition_search.h"

namespace penstock {

struct StagePartition {
  PartitionKind kind = PartitionKind::time;
  bool is_exact = true;
  Stages stages;
};

/// Partitions for one m. Remembers what it has searched for.
///
/// The time of a rank is what its stages take for one micro-batch in the instructions of the schedule (F, I and W or B, a
/// fused W at its own cost), their update divided by m, and what its stages wait for besides: the message that brings
/// each stage's input from another rank, and the one that brings its gradient. (Messages occupy no rank, but a chain of
/// ranks that wait for each other moves at that pace.)
class StagePartitioner {
 public:
  /// Both must outlive the partitioner.
  StagePartitioner(const LayerCosts& costs, const LayerSums& sums) : costs_(costs), sums_(sums) {}

  /// The different ones among time, uniform and parameters; without the first when nothing fits into memory. As many
  /// layers as stages are needed. `schedule` shows the placement, and what is held.
  std::vector<StagePartition> partitions(const Schedule& schedule);
  /// The one that needs the least memory in the fullest rank.
  StagePartition smallest(const Schedule& schedule);

 private:
  std::optional<StagePartition> fastest(const Schedule& schedule);
  /// What the time of a rank depends on.
  struct Pace {
    std::vector<Rank> rank_of_stage;
    GradientInstructions instructions;

    friend auto operator<=>(const Pace&, const Pace&) = default;
  };

  Pace pace_of(const Schedule& schedule) const;
  const FoundPartition& fastest_without_cap(const Pace& pace);
  FoundPartition fastest_where(const Pace& pace, const std::vector<LiveContexts>* live,
                               const std::vector<Stages>& known) const;
  double rank_time(const Pace& pace, Rank rank, std::span<const LayerRange> stages) const;

  const LayerCosts& costs_;
  const LayerSums& sums_;
  std::map<Pace, FoundPartition> fastest_;
  std::map<int, std::vector<StagePartition>> fixed_;  // by number of stages
};

}  // namespace penstock
