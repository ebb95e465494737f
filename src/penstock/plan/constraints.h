// What the planner may choose, and how long it may take.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "penstock/plan/cluster.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/schedule/memory_limit.h"
#include "penstock/schedule/weight_gradients.h"

namespace penstock {

/// The upper bound of chunks per rank in candidates, and of stages per rank when stages are timed.
inline constexpr int most_chunks = 4;

/// How far make_plan() is.
struct PlanProgress {
  std::size_t tried = 0;       // candidates
  std::optional<double> best;  // the shortest step so far that fits, in the unit of the costs
  double seconds = 0;          // since the start
};

struct PlanConstraints {
  /// Names of generators; empty: all that have backward passes, unless there are own_schedules.
  std::vector<std::string> schedules = {};
  std::vector<Schedule> own_schedules = {};  // to be tried as they are, in settings of their p and m
  WeightGradients weight_gradients = WeightGradients::automatic;  // stream, fused, or automatic: both are tried
  std::optional<int> chunks = {};                                 // stages per rank; none: 1 to most_chunks
  /// The partition: the layers of each of the p * v stages, in the order of the costs. Empty: the planner partitions.
  StageLayers stages = {};
  /// The limit of the activations per rank: candidates above it do not fit, and schedules that adapt to a limit get
  /// it as their largest. Bytes are compared with LayerCost::activation_bytes. None: no limit.
  std::optional<MemoryLimit> memory_limit = {};
  int finalists = 0;  // at most so many Planned::finalists
  /// The devices on which the ranks can run; then LayerCosts::ranks, link and memory_cap_bytes have no effect, and the
  /// planner chooses p, the replicas d and the devices as well. None: the equal ranks of the costs.
  std::optional<Cluster> cluster = {};
  std::vector<int> ranks = {};     // p's to try; empty: the costs' without a cluster, else all that are possible
  std::vector<int> replicas = {};  // d's to try, with a cluster; empty: all that are possible
  /// With a cluster: ranks run on its first devices, in its order (listed_placement).
  bool keeps_order = false;
  /// Whether blocks of ranks without enough memory may be recomputed in the backward pass.
  bool recompute = false;
  bool overlaps_reduction = false;  // StageCosts::reduce_overlaps
  bool shards_optimizer = false;    // each replica has 1/d of LayerCost::optimizer_bytes (ZeRO-1)
  /// Ends the search after these seconds, with the best of the candidates so far. The choice then depends on the speed
  /// of this machine. None: no limit.
  std::optional<double> time_limit_s = {};
  /// Called after every candidate, in the calling thread. What it throws ends make_plan().
  std::function<void(const PlanProgress&)> progress = {};
};

}  // namespace penstock
