// The machines of a pipeline's ranks: their speeds, their memory, the links between them, and the links between the
// replicas of a rank. Inside this library only.
#pragma once

#include <limits>
#include <vector>

#include "penstock/base/ids.h"
#include "penstock/plan/cluster.h"
#include "penstock/plan/layer_costs.h"
#include "penstock/schedule/stage_costs.h"

namespace penstock {

/// The p ranks of a pipeline. Immutable.
class Site {
 public:
  /// The equal ranks of a cost file.
  explicit Site(const LayerCosts& costs);
  /// Devices of a cluster; times in the unit of `costs`. A rank is as slow as its slowest replica, has the memory of its
  /// smallest one, and its messages take as long as the slowest of its replicas' links. A shared link divides its
  /// bandwidth by the number of pairs of neighbouring ranks, over all replicas, that use it. Throws ConfigError for a
  /// time unit without seconds.
  Site(const Cluster& cluster, const Placement& placement, const LayerCosts& costs);

  /// The time of an instruction on the rank, relative to the cost file.
  double slowness(Rank rank) const { return slowness_.empty() ? 1 : slowness_[rank.index()]; }
  bool is_of_cluster() const { return !slowness_.empty(); }
  double least_slowness() const;
  /// The sum of the ranks' speeds, or `ranks` without a cluster.
  double speed(int ranks) const;
  /// Bytes; infinity if nothing limits them.
  double memory(Rank rank) const { return memory_.empty() ? cap_ : memory_[rank.index()]; }
  bool limits_memory() const { return limits_memory_; }
  const LinkSpeed& link(Rank from, Rank to) const {
    return links_.empty() ? link_ : links_[from.index() * slowness_.size() + to.index()];
  }
  /// The time of summing `bytes` over the replicas of a rank, by a ring (Patarasuk and Yuan, 2009): 2 (d - 1) messages
  /// of bytes / d each.
  double reduction(Rank rank, double bytes) const;

 private:
  LinkSpeed link_;
  double cap_ = std::numeric_limits<double>::infinity();
  bool limits_memory_ = false;
  int replicas_ = 1;
  std::vector<double> slowness_;
  std::vector<double> memory_;
  std::vector<LinkSpeed> links_;       // by sender, then receiver
  std::vector<LinkSpeed> reductions_;  // per rank
};

/// A message of so many bytes.
inline MessageCost message_over(const LinkSpeed& link, double bytes) {
  const double gap = link.bytes_per_unit > 0 ? bytes / link.bytes_per_unit : 0;
  return {link.latency + gap, gap};
}

}  // namespace penstock
