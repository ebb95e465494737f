#include "penstock/plan/settings.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

constexpr std::size_t few_devices = 16;  // up to so many, every p and d is tried
constexpr std::size_t most_orders = 24;  // of nodes

double speed_of(const Cluster& cluster, const Device& device) { return cluster.kind_of(device).speed; }

double memory_of(const Cluster& cluster, const Device& device) {
  return cluster.kind_of(device).memory_bytes.value_or(std::numeric_limits<double>::infinity());
}

/// The `count` fastest devices, in the order of nodes.
std::vector<Device> fastest(const Cluster& cluster, int count) {
  std::vector<Device> devices = cluster.devices();
  std::ranges::stable_sort(devices, std::greater<>(), [&](const Device& device) { return speed_of(cluster, device); });
  devices.resize(static_cast<std::size_t>(count));
  std::ranges::sort(devices, {}, [](const Device& device) { return std::pair(device.node, device.number); });
  return devices;
}

/// Orders of the devices in which the ranks of a pipeline can run on them: as listed, by speed and by memory; for few
/// devices also others of the nodes. Equal nodes are not exchanged.
std::vector<std::vector<Device>> orders_of(const Cluster& cluster, const std::vector<Device>& devices) {
  std::vector<std::vector<Device>> orders{devices};
  const auto add = [&](std::vector<Device> order) {
    if (std::ranges::find(orders, order) == orders.end()) orders.push_back(std::move(order));
  };
  const auto sorted = [&](const auto& key) {
    std::vector<Device> order = devices;
    std::ranges::stable_sort(order, {}, key);
    add(std::move(order));
  };
  sorted([&](const Device& device) { return -speed_of(cluster, device); });
  sorted([&](const Device& device) { return speed_of(cluster, device); });
  sorted([&](const Device& device) { return -memory_of(cluster, device); });
  if (devices.size() > few_devices) return orders;
  // A number for each node; nodes that no cost tells apart have the same one.
  std::vector<std::vector<Device>> nodes;
  std::vector<std::size_t> classes;
  for (const Device& device : devices) {
    if (nodes.empty() || nodes.back().front().node != device.node) nodes.emplace_back();
    nodes.back().push_back(device);
  }
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    const auto is_alike = [&](const std::vector<Device>& other) {
      return cluster.links.empty() && other.size() == nodes[n].size() &&
             &cluster.kind_of(other.front()) == &cluster.kind_of(nodes[n].front());
    };
    classes.push_back(static_cast<std::size_t>(std::ranges::find_if(nodes, is_alike) - nodes.begin()));
    if (!cluster.links.empty()) classes.back() = n;
  }
  std::ranges::sort(classes);
  do {
    std::vector<std::size_t> next(nodes.size());
    std::iota(next.begin(), next.end(), std::size_t{0});
    std::vector<Device> order;
    for (const std::size_t one : classes) {  // the next node of this class
      const auto is_one = [&](std::size_t n) {
        return cluster.links.empty() ? &cluster.kind_of(nodes[n].front()) == &cluster.kind_of(nodes[one].front()) &&
                                           nodes[n].size() == nodes[one].size()
                                     : n == one;
      };
      const auto found = std::ranges::find_if(next, is_one);
      order.insert(order.end(), nodes[*found].begin(), nodes[*found].end());
      next.erase(found);
    }
    add(std::move(order));
  } while (orders.size() < most_orders && std::ranges::next_permutation(classes).found);
  return orders;
}

/// Replicas beside each other in `order`, or pipelines beside each other.
std::vector<Placement> placements_of(const std::vector<Device>& order, int ranks, int replicas) {
  const auto p = static_cast<std::size_t>(ranks), d = static_cast<std::size_t>(replicas);
  Placement beside(p), apart(p);
  for (std::size_t rank = 0; rank < p; ++rank)
    for (std::size_t k = 0; k < d; ++k) {
      beside[rank].push_back(order[rank * d + k]);
      apart[rank].push_back(order[k * p + rank]);
    }
  if (beside == apart) return {beside};
  return {beside, apart};
}

/// p and d.
using Shape = std::pair<int, int>;

/// Numbers of devices that a plan may use.
std::set<int> totals_of(const Cluster& cluster, int devices) {
  std::set<int> totals{devices, static_cast<int>(std::bit_floor(static_cast<unsigned>(devices)))};
  for (const auto& [name, kind] : cluster.kinds) {
    int count = 0;
    for (const Device& device : cluster.devices())
      if (speed_of(cluster, device) >= kind.speed) ++count;
    if (count > 0) totals.insert(count);
  }
  return totals;
}

std::vector<Shape> shapes_of(const LayerCosts& costs, const PlanConstraints& constraints) {
  const Cluster& cluster = *constraints.cluster;
  const int devices = static_cast<int>(cluster.devices().size());
  const auto allows = [](const std::vector<int>& given, int number) {
    return given.empty() || std::ranges::find(given, number) != given.end();
  };
  const int units = count_units(blocks_of(costs));
  const bool is_free =
      constraints.ranks.empty() && constraints.replicas.empty() && devices > static_cast<int>(few_devices);
  std::vector<Shape> shapes;
  const auto add = [&](int p, int d) {
    const bool is_possible = p * d <= devices && d <= costs.samples && (p <= units || !constraints.ranks.empty()) &&
                             p <= std::ssize(costs.layers);
    if (is_possible && allows(constraints.ranks, p) && allows(constraints.replicas, d) &&
        std::ranges::find(shapes, Shape(p, d)) == shapes.end())
      shapes.emplace_back(p, d);
  };
  const std::set<int> totals = totals_of(cluster, devices);
  for (int p = 1; p <= std::min<int>(devices, static_cast<int>(costs.layers.size())); ++p) {
    if (is_free) {
      for (const int total : totals)
        if (total % p == 0) add(p, total / p);
    } else {
      for (int d = 1; p * d <= devices; ++d) add(p, d);
    }
  }
  require<ConfigError>(!shapes.empty(), "no number of ranks and replicas is possible: the cluster has ", devices,
                       " devices, the network ", units, units == std::ssize(costs.layers) ? " layers" : " blocks",
                       constraints.ranks.empty() ? "" : say(", and the ranks to try are ", listed(constraints.ranks)),
                       constraints.replicas.empty() ? "" : say(", the replicas ", listed(constraints.replicas)),
                       ": try fewer");
  return shapes;
}

std::vector<Placement> placements_to_try(const PlanConstraints& constraints, const Shape& shape) {
  const Cluster& cluster = *constraints.cluster;
  if (constraints.keeps_order) return {listed_placement(cluster, {shape.first, shape.second})};
  std::vector<Placement> tried;
  for (const std::vector<Device>& order : orders_of(cluster, fastest(cluster, shape.first * shape.second)))
    for (Placement& placement : placements_of(order, shape.first, shape.second))
      if (std::ranges::find(tried, placement) == tried.end()) tried.push_back(std::move(placement));
  return tried;
}

/// The costs of one replica on p ranks.
LayerCosts share_of(const LayerCosts& costs, const PlanConstraints& constraints, const Shape& shape) {
  LayerCosts share = costs;
  share.ranks = shape.first;
  share.samples = (costs.samples + shape.second - 1) / shape.second;
  if (!constraints.shards_optimizer) return share;
  for (LayerCost& layer : share.layers)
    layer.parameter_bytes -= std::floor(layer.optimizer_bytes.value_or(0) * (1 - 1.0 / shape.second));
  return share;
}

/// Micro-batches of the measured size and of twice that, unless the costs list m.
std::vector<int> micro_batches_of(const LayerCosts& costs) {
  std::vector<int> tried = candidate_micro_batches(costs);
  if (!costs.micro_batches.empty()) {
    std::erase_if(tried, [&](int m) { return m > costs.samples; });
    return tried;
  }
  if (const int half = (tried.front() + 1) / 2; half != tried.front()) tried.push_back(half);
  return tried;
}

}  // namespace

std::vector<std::shared_ptr<const PlanSetting>> settings_of(const LayerCosts& costs,
                                                            const PlanConstraints& constraints) {
  std::vector<std::shared_ptr<const PlanSetting>> settings;
  if (!constraints.cluster) {
    require<ConfigError>(constraints.replicas.empty() || constraints.replicas == std::vector<int>{1},
                         listed(constraints.replicas),
                         " replicas without a cluster: pass the cluster, whose links say "
                         "what it costs to sum their gradients");
    for (const int ranks : constraints.ranks.empty() ? std::vector<int>{costs.ranks} : constraints.ranks) {
      LayerCosts share = costs;
      share.ranks = ranks;
      for (const int m : candidate_micro_batches(costs))
        settings.push_back(std::make_shared<const PlanSetting>(PlanSetting{share, {}, Site(share), 1, m}));
    }
    return settings;
  }
  // The first placement of every p and d comes before the second of any, because time may be short.
  std::vector<std::vector<std::shared_ptr<const PlanSetting>>> rounds;
  for (const Shape& shape : shapes_of(costs, constraints)) {
    const LayerCosts share = share_of(costs, constraints, shape);
    const std::vector<Placement> placements = placements_to_try(constraints, shape);
    rounds.resize(std::max(rounds.size(), placements.size()));
    for (std::size_t i = 0; i < placements.size(); ++i) {
      const Site site(*constraints.cluster, placements[i], share);
      for (const int m : micro_batches_of(share))
        rounds[i].push_back(
            std::make_shared<const PlanSetting>(PlanSetting{share, placements[i], site, shape.second, m}));
    }
  }
  for (const auto& round : rounds) settings.insert(settings.end(), round.begin(), round.end());
  return settings;
}

PlanSetting setting_of(const Plan& plan, const LayerCosts& costs, const PlanConstraints& constraints) {
  require<ConfigError>(plan.devices.empty() || constraints.cluster.has_value(),
                       "the plan is for devices of a cluster (", plan.devices.empty() ? "" : plan.devices.front(),
                       ", ...): pass the cluster");
  const int m = plan.schedule.micro_batches;
  const LayerCosts share = share_of(costs, constraints, {plan.schedule.rank_count(), plan.replicas});
  if (plan.devices.empty()) return {share, {}, Site(share), plan.replicas, m};
  const std::vector<Device> devices = constraints.cluster->devices();
  Placement placement(static_cast<std::size_t>(plan.schedule.rank_count()));
  for (std::size_t i = 0; i < plan.devices.size(); ++i) {
    const auto found = std::ranges::find(devices, plan.devices[i],
                                         [&](const Device& device) { return constraints.cluster->name_of(device); });
    require<ConfigError>(found != devices.end(), "the plan is for device ", plan.devices[i],
                         ", which the cluster does not have");
    placement[i / static_cast<std::size_t>(plan.replicas)].push_back(*found);
  }
  return {share, placement, Site(*constraints.cluster, placement, share), plan.replicas, m};
}

}  // namespace penstock
