#include "penstock/plan/site.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace penstock {
namespace {

/// The number of pairs of devices that use the link between two nodes, by its nodes.
using Users = std::map<std::pair<int, int>, int>;

class LinkSpeeds {
 public:
  LinkSpeeds(const Cluster& cluster, double unit_seconds)
      : cluster_(cluster),
        bytes_per_unit_(1e9 * unit_seconds),
        latency_factor_(seconds_of(cluster.time_unit) / unit_seconds) {}

  LinkSpeed between(const Device& from, const Device& to, const Users& users) const {
    const ClusterLink& link = cluster_.link(from, to);
    double bytes = link.gigabytes_per_second * bytes_per_unit_;
    if (const auto found = users.find({from.node, to.node}); link.is_shared && found != users.end())
      bytes /= std::max(1, found->second);
    return {bytes, link.latency * latency_factor_};
  }

 private:
  const Cluster& cluster_;
  double bytes_per_unit_;
  double latency_factor_;
};

/// Of two links that are used at the same time, what the slower one makes of both.
LinkSpeed slower(const LinkSpeed& a, const LinkSpeed& b) {
  const auto bytes = [](const LinkSpeed& link) {
    return link.bytes_per_unit > 0 ? link.bytes_per_unit : std::numeric_limits<double>::infinity();
  };
  const double least = std::min(bytes(a), bytes(b));
  return {least == std::numeric_limits<double>::infinity() ? 0 : least, std::max(a.latency, b.latency)};
}

}  // namespace

Site::Site(const LayerCosts& costs)
    : link_(costs.link),
      cap_(costs.memory_cap_bytes.value_or(std::numeric_limits<double>::infinity())),
      limits_memory_(costs.memory_cap_bytes.has_value()) {}

Site::Site(const Cluster& cluster, const Placement& placement, const LayerCosts& costs) : Site(costs) {
  const LinkSpeeds links(cluster, seconds_of(costs.time_unit));
  const std::size_t ranks = placement.size();
  replicas_ = static_cast<int>(placement.front().size());
  Users neighbours, rings;
  const auto for_each_ring_pair = [](const std::vector<Device>& replicas, const auto& call) {
    for (std::size_t k = 0; replicas.size() > 1 && k < replicas.size(); ++k)
      call(replicas[k], replicas[(k + 1) % replicas.size()]);
  };
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t k = 0; rank + 1 < ranks && k < placement[rank].size(); ++k) {
      ++neighbours[{placement[rank][k].node, placement[rank + 1][k].node}];
      ++neighbours[{placement[rank + 1][k].node, placement[rank][k].node}];
    }
    for_each_ring_pair(placement[rank], [&](const Device& a, const Device& b) { ++rings[{a.node, b.node}]; });
  }
  for (const std::vector<Device>& replicas : placement) {
    double slowness = 0;
    double memory = cap_;
    LinkSpeed reduction;
    for (const Device& device : replicas) {
      const DeviceKind& kind = cluster.kind_of(device);
      slowness = std::max(slowness, 1 / kind.speed);
      memory = std::min(memory, kind.memory_bytes.value_or(memory));
      limits_memory_ = limits_memory_ || kind.memory_bytes;
    }
    for_each_ring_pair(
        replicas, [&](const Device& a, const Device& b) { reduction = slower(reduction, links.between(a, b, rings)); });
    slowness_.push_back(slowness);
    memory_.push_back(memory);
    reductions_.push_back(reduction);
  }
  links_.resize(ranks * ranks);
  for (std::size_t from = 0; from < ranks; ++from)
    for (std::size_t to = 0; to < ranks; ++to)
      for (std::size_t k = 0; from != to && k < placement[from].size(); ++k) {
        LinkSpeed& link = links_[from * ranks + to];
        link = slower(link, links.between(placement[from][k], placement[to][k], neighbours));
      }
}

double Site::least_slowness() const { return slowness_.empty() ? 1 : *std::ranges::min_element(slowness_); }

double Site::speed(int ranks) const {
  if (slowness_.empty()) return ranks;
  return std::accumulate(slowness_.begin(), slowness_.end(), 0.0,
                         [](double sum, double slowness) { return sum + 1 / slowness; });
}

double Site::reduction(Rank rank, double bytes) const {
  if (replicas_ == 1) return 0;
  const LinkSpeed& link = reductions_[rank.index()];
  const double messages = 2 * (replicas_ - 1);
  return messages * (link.latency + (link.bytes_per_unit > 0 ? bytes / replicas_ / link.bytes_per_unit : 0));
}

}  // namespace penstock
