// The machines of a plan: devices of unequal speed and memory on nodes, and the links between them
// (docs/cost_file.md has the file format).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

struct DeviceKind {
  /// Times on this kind are the cost file's divided by `speed`.
  double speed = 1;
  std::optional<double> memory_bytes = {};

  friend bool operator==(const DeviceKind&, const DeviceKind&) = default;
};

struct ClusterNode {
  std::string name;
  std::string kind;  // a key of Cluster::kinds
  int ranks = 1;     // its devices; each runs one rank

  friend bool operator==(const ClusterNode&, const ClusterNode&) = default;
};

/// The link from one device to another, in one direction. A message takes latency + bytes / bandwidth.
struct ClusterLink {
  double gigabytes_per_second = 0;  // 10^9 bytes; 0: bytes cost nothing
  double latency = 0;               // in Cluster::time_unit
  /// True if all pairs of devices that send over it at the same time divide the bandwidth: the network card of a node.
  bool is_shared = false;

  friend bool operator==(const ClusterLink&, const ClusterLink&) = default;
};

/// A device: the `number`-th of node `node`.
struct Device {
  int node = 0;
  int number = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

struct Cluster {
  std::string time_unit = "ms";
  std::map<std::string, DeviceKind> kinds = {};
  std::vector<ClusterNode> nodes = {};
  ClusterLink inside = {};   // between devices of one node
  ClusterLink between = {};  // between devices of different nodes
  /// Exceptions: "n0" is the link inside of node n0, "n0>n1" the one from n0 to n1.
  std::map<std::string, ClusterLink> links = {};

  /// All devices, node after node.
  std::vector<Device> devices() const;
  const DeviceKind& kind_of(const Device& device) const;
  const ClusterLink& link(const Device& from, const Device& to) const;
  /// "n0:3".
  std::string name_of(const Device& device) const;

  friend bool operator==(const Cluster&, const Cluster&) = default;
};

/// Reads a cluster file strictly. Throws DataError, which names the member and its possible values.
Cluster read_cluster(std::string_view text);
/// read_cluster(write_cluster(x)) == x. Throws DataError for values that a file cannot represent.
std::string write_cluster(const Cluster& cluster);

/// Per pipeline rank, the device of each replica.
using Placement = std::vector<std::vector<Device>>;

struct ReplicatedRanks {
  int ranks = 1;     // p
  int replicas = 1;  // d
};

/// Ranks on the first p * d devices: the replicas of rank r are devices r * d to r * d + d - 1. Throws ConfigError if
/// there are fewer.
Placement listed_placement(const Cluster& cluster, const ReplicatedRanks& shape);

/// The seconds of a unit of time: "s", "ms", "us" or "ns". Throws ConfigError for another one.
double seconds_of(std::string_view time_unit);

/// The first `count` devices. Throws ConfigError if there are fewer.
Cluster first_devices(const Cluster& cluster, int count);

}  // namespace penstock
