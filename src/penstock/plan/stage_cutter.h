// The cuts that the planner tries. Inside this room only.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "penstock/plan/planner.h"
#include "penstock/plan/layer_sums.h"

namespace penstock {

struct StageCut {
  CutKind kind = CutKind::time;
  bool is_exact = true;
  Stages stages;
};

/// Cuts for one m. Remembers what it has searched for.
///
/// The time of a rank is F + I + W of its stages for one micro-batch, and what its stages wait for besides: the message
/// that brings each stage's input from another rank, and the one that brings its gradient. (Messages occupy no rank,
/// but a chain of ranks that wait for each other moves at that pace.)
class StageCutter {
 public:
  /// Both must outlive the cutter.
  StageCutter(const LayerCosts& costs, const LayerSums& sums) : costs_(costs), sums_(sums) {}

  /// The different ones among time, uniform and parameters; without the first when nothing fits into memory. As many
  /// layers as stages are needed. `schedule` shows the placement, and what is held.
  std::vector<StageCut> cuts(const Schedule& schedule);
  /// The one that needs the least memory in the fullest rank.
  StageCut smallest(const Schedule& schedule);

 private:
  std::optional<StageCut> fastest(const Schedule& schedule);
  const Partition& fastest_without_cap(const std::vector<Rank>& rank_of_stage);
  Partition fastest_where(const std::vector<Rank>& rank_of_stage, const std::vector<LiveContexts>* live,
                          const std::vector<Stages>& known) const;
  double rank_time(const std::vector<Rank>& rank_of_stage, Rank rank, std::span<const Stretch> stages) const;

  const LayerCosts& costs_;
  const LayerSums& sums_;
  std::map<std::vector<Rank>, Partition> fastest_;
  std::map<int, std::vector<StageCut>> fixed_;  // by number of stages
};

}  // namespace penstock
