// The partitions of the planner's candidates. Inside this module only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/layer_sums.h"
#include "penstock/plan/partition.h"
#include "penstock/plan/partition_search.h"
#include "penstock/schedule/memory_limit.h"

namespace penstock {

struct StagePartition {
  PartitionKind kind = PartitionKind::time;
  bool is_exact = true;
  Stages stages;
};

/// Finds partitions for one m, and caches the results of searches. Not thread-safe.
///
/// The time of a rank is the sum, over its stages, of the time for one micro-batch in the instructions of the schedule
/// (F, I and W or B, a fused W at its own cost) at the speed of the rank, of the update divided by m, and of the
/// messages for which the stage waits: the one with its input and the one with its gradient, if they come from other
/// ranks. (Messages occupy no rank, but a chain of ranks that wait for each other is slowed down by them.)
///
/// With several stages per rank, partitions with equally fast ranks differ in their slowest stages, which make the
/// pipeline fill and drain slowly: for (p - 1) / m of their time for each micro-batch in interleaved 1F1B (Narayanan et
/// al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021, section 2.2). So there are two fastest
/// partitions: for many micro-batches, in which the slowest stage decides between equally fast ranks only, and for m.
class StagePartitioner {
 public:
  /// `costs` and `sums` must outlive the partitioner. A partition fits into memory if it stays within the memory of
  /// each rank (Site) and within `limit`, if that is in bytes.
  StagePartitioner(const LayerCosts& costs, const LayerSums& sums, const std::optional<MemoryLimit>& limit = {});

  /// The distinct partitions among time (both), uniform and parameters; without time if no partition fits into memory.
  /// There must be at least as many layers as stages. `schedule` states the placement and the live micro-batches.
  std::vector<StagePartition> partitions(const Schedule& schedule);
  /// The fastest partition for m micro-batches, whether it fits or not.
  StagePartition fastest_of_any_size(const Schedule& schedule) {
    return fastest_of_any_size(pace_of(schedule, fill_and_drain(schedule)));
  }
  /// The partition that needs the least memory on the fullest rank; of several limits, the least of the scarcest.
  StagePartition smallest(const Schedule& schedule);

 private:
  /// The properties of a schedule on which the time of a rank depends.
  struct Pace {
    std::vector<Rank> rank_of_stage;
    GradientInstructions instructions;
    double slowest_counts = 0;  // the share of a rank's slowest stage that is added to the rank's time

    friend auto operator<=>(const Pace&, const Pace&) = default;
  };

  Pace pace_of(const Schedule& schedule, double slowest_counts) const;
  /// Pace::slowest_counts for m micro-batches; 0 with one stage per rank.
  double fill_and_drain(const Schedule& schedule) const;
  StagePartition fastest_of_any_size(const Pace& pace);
  std::optional<StagePartition> fastest(const Schedule& schedule, double slowest_counts);
  FoundPartition fastest_where(const Pace& pace, const std::vector<LiveContexts>* live,
                               const std::vector<Stages>& known) const;
  double rank_time(const Pace& pace, Rank rank, std::span<const LayerRange> stages) const;
  bool limits_memory() const { return sums_.site().limits_memory() || activation_limit_; }

  /// The bytes that a rank needs, as a share of those that it may use; the bytes themselves if nothing limits them.
  double need(Rank rank, const LiveContexts& live, std::span<const LayerRange> stages) const;
  /// That of the fullest rank.
  double need(const std::vector<LiveContexts>& live, const std::vector<Rank>& rank_of_stage,
              const Stages& stages) const;

  const LayerCosts& costs_;
  const LayerSums& sums_;
  std::vector<std::string> blocks_;                   // by layer
  std::optional<double> activation_limit_;            // bytes per rank
  std::map<Pace, FoundPartition> fastest_;            // without a limit of memory
  std::map<int, std::vector<StagePartition>> fixed_;  // uniform and parameters, by number of stages
};

}  // namespace penstock
