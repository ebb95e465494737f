#include "penstock/plan/cluster.h"

#include <algorithm>
#include <set>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view cluster_file = "the cluster file";
constexpr const char* cluster_key = "penstock_cluster";
constexpr int cluster_version = 1;
constexpr std::int64_t most_devices = 65536;

std::string name_in(const StrictValue& value, std::string_view name) {
  require<DataError>(!name.empty() && is_plain_text(name) && name.find_first_of(">:,; ") == std::string::npos,
                     value.place(), " has the name '", printable(name),
                     "': a name is not empty and has no '>', ':', ',', ';' or space in it");
  return std::string(name);
}

double positive(const StrictValue& value) {
  const double amount = value.amount();
  require<DataError>(amount > 0, value.place(), " is ", amount, ": it must be above 0");
  return amount;
}

double memory(const StrictValue& value) {
  const std::string text = value.text();
  const auto bytes = parse_bytes(text);
  require<DataError>(bytes.has_value(), value.place(), " is '", printable(text), "': write bytes with a unit (",
                     byte_unit_names, "), as \"80GB\"");
  return static_cast<double>(*bytes);
}

DeviceKind read_kind(const StrictValue& value) {
  value.require_members({"speed", "memory"});
  DeviceKind kind;
  if (value.has("speed")) kind.speed = positive(value["speed"]);
  if (value.has("memory")) kind.memory_bytes = memory(value["memory"]);
  return kind;
}

ClusterLink read_link(const StrictValue& value) {
  value.require_members({"GB_per_s", "latency", "shared"});
  ClusterLink link;
  if (value.has("GB_per_s")) link.gigabytes_per_second = positive(value["GB_per_s"]);
  if (value.has("latency")) link.latency = value["latency"].amount();
  if (value.has("shared")) link.is_shared = value["shared"].boolean();
  return link;
}

ClusterNode read_node(const StrictValue& value, const Cluster& cluster) {
  value.require_members({"name", "kind", "ranks"});
  ClusterNode node{name_in(value, value["name"].text()), value["kind"].text(), 1};
  if (value.has("ranks")) node.ranks = static_cast<int>(value["ranks"].whole(1, most_devices));
  if (cluster.kinds.contains(node.kind)) return node;
  std::vector<std::string> names;
  for (const auto& [name, kind] : cluster.kinds) names.push_back(name);
  throw DataError(say(value["kind"].place(), " is '", printable(node.kind), "', and the kinds are ",
                      listed(names, ", ", [](const std::string& name) { return name; }), ": did you mean '",
                      nearest(node.kind, names), "'?"));
}

/// "n0" or "n0>n1".
void require_link_name(const StrictValue& value, const std::string& name, const Cluster& cluster) {
  std::vector<std::string> names;
  for (const ClusterNode& node : cluster.nodes) names.push_back(node.name);
  const std::vector<std::string_view> ends = separated(name, '>');
  for (const std::string_view end : ends)
    require<DataError>(std::ranges::find(names, end) != names.end(), value.place(), " names node '", printable(end),
                       "', which is not in nodes: write inside, between, a node, or NODE>NODE; did you mean '",
                       nearest(end, names), "'?");
  require<DataError>(ends.size() <= 2 && (ends.size() == 1 || ends[0] != ends[1]), value.place(),
                     " is not a link: write inside, between, a node, or NODE>NODE for two nodes");
}

ordered_json as_json(const ClusterLink& link) {
  ordered_json members = ordered_json::object();
  if (link.gigabytes_per_second > 0) members["GB_per_s"] = link.gigabytes_per_second;
  if (link.latency > 0) members["latency"] = link.latency;
  if (link.is_shared) members["shared"] = true;
  return members;
}

}  // namespace

std::vector<Device> Cluster::devices() const {
  std::vector<Device> all;
  for (std::size_t node = 0; node < nodes.size(); ++node)
    for (int number = 0; number < nodes[node].ranks; ++number) all.push_back({static_cast<int>(node), number});
  return all;
}

const DeviceKind& Cluster::kind_of(const Device& device) const {
  return kinds.at(nodes[static_cast<std::size_t>(device.node)].kind);
}

const ClusterLink& Cluster::link(const Device& from, const Device& to) const {
  const bool is_inside = from.node == to.node;
  if (!links.empty()) {
    const std::string& begin = nodes[static_cast<std::size_t>(from.node)].name;
    const auto found = links.find(is_inside ? begin : begin + '>' + nodes[static_cast<std::size_t>(to.node)].name);
    if (found != links.end()) return found->second;
  }
  return is_inside ? inside : between;
}

std::string Cluster::name_of(const Device& device) const {
  return say(nodes[static_cast<std::size_t>(device.node)].name, ':', device.number);
}

Cluster read_cluster(std::string_view text) {
  const nlohmann::json document = parse_strictly(text, cluster_file);
  const StrictValue root(document, cluster_file);
  root.require_version(cluster_key, cluster_version, ": docs/cost_file.md describes the format");
  root.require_members({cluster_key, "time_unit", "kinds", "nodes", "links"});
  Cluster cluster{.time_unit = root["time_unit"].text()};
  seconds_of(cluster.time_unit);
  for (const auto& [name, kind] : root["kinds"].members()) cluster.kinds[name_in(kind, name)] = read_kind(kind);
  require<DataError>(!cluster.kinds.empty(), root["kinds"].place(), " is empty: name a kind of device");
  std::set<std::string> names;
  std::int64_t devices = 0;
  for (const StrictValue& value : root["nodes"].list()) {
    cluster.nodes.push_back(read_node(value, cluster));
    devices += cluster.nodes.back().ranks;
    require<DataError>(names.insert(cluster.nodes.back().name).second, value.place(), " is the second node '",
                       cluster.nodes.back().name, "': names of nodes differ");
  }
  require<DataError>(devices >= 1 && devices <= most_devices, root["nodes"].place(), " have ", devices, " ranks: 1 to ",
                     most_devices, " are possible");
  for (const auto& [name, value] : root["links"].members()) {
    const ClusterLink link = read_link(value);
    if (name == "inside" || name == "between") {
      (name == "inside" ? cluster.inside : cluster.between) = link;
      continue;
    }
    require_link_name(value, name, cluster);
    cluster.links[name] = link;
  }
  return cluster;
}

std::string write_cluster(const Cluster& cluster) {
  ordered_json document = {{cluster_key, cluster_version}, {"time_unit", cluster.time_unit}};
  document["kinds"] = ordered_json::object();
  for (const auto& [name, kind] : cluster.kinds) {
    document["kinds"][name] = {{"speed", kind.speed}};
    if (kind.memory_bytes)
      document["kinds"][name]["memory"] = bytes_text(static_cast<std::int64_t>(*kind.memory_bytes));
  }
  document["nodes"] = ordered_json::array();
  for (const ClusterNode& node : cluster.nodes)
    document["nodes"].push_back({{"name", node.name}, {"kind", node.kind}, {"ranks", node.ranks}});
  document["links"] = {{"inside", as_json(cluster.inside)}, {"between", as_json(cluster.between)}};
  for (const auto& [name, link] : cluster.links) document["links"][name] = as_json(link);
  std::string text = exact_json_text(document, "this cluster", 2) + "\n";
  require<DataError>(read_cluster(text) == cluster, "this cluster has values that a cluster file cannot represent");
  return text;
}

double seconds_of(std::string_view time_unit) {
  static const std::map<std::string_view, double> units{{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  const auto found = units.find(time_unit);
  require<ConfigError>(found != units.end(), "the time_unit is '", printable(time_unit),
                       "': with a cluster it is s, ms, us or ns, because bandwidths are in GB per second");
  return found->second;
}

Placement listed_placement(const Cluster& cluster, const ReplicatedRanks& shape) {
  const std::vector<Device> devices = cluster.devices();
  const auto ranks = static_cast<std::size_t>(shape.ranks), replicas = static_cast<std::size_t>(shape.replicas);
  require<ConfigError>(shape.replicas >= 1 && ranks * replicas <= devices.size(), counted(shape.ranks, "rank"),
                       " with ", counted(shape.replicas, "replica"), " each need ", ranks * replicas,
                       " devices, and the cluster has ", devices.size(), ": add nodes, or use fewer ranks");
  Placement placement(ranks);
  for (std::size_t i = 0; i < ranks * replicas; ++i) placement[i / replicas].push_back(devices[i]);
  return placement;
}

Cluster first_devices(const Cluster& cluster, int count) {
  Cluster first = cluster;
  first.nodes.clear();
  int left = count;
  for (const ClusterNode& node : cluster.nodes) {
    if (left == 0) break;
    first.nodes.push_back(node);
    first.nodes.back().ranks = std::min(left, node.ranks);
    left -= first.nodes.back().ranks;
  }
  require<ConfigError>(count >= 1 && left == 0, "the cluster has ", count - left, " devices, and ", count,
                       " are asked for: add nodes, or ask for fewer");
  std::erase_if(first.links, [&](const auto& link) {
    return std::ranges::any_of(separated(link.first, '>'), [&](std::string_view name) {
      return std::ranges::none_of(first.nodes, [&](const ClusterNode& node) { return node.name == name; });
    });
  });
  return first;
}

}  // namespace penstock
