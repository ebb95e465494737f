#include "penstock/plan/cluster.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "penstock/plan/layer_costs.h"
#include "penstock/plan/site.h"
#include "tests/base/error_text.h"
#include "tests/plan/small_clusters.h"
#include "tests/plan/small_costs.h"

namespace penstock::cluster_test {
namespace {

using test::error_text;
using test::says;

constexpr const char* example = R"({"penstock_cluster": 1, "time_unit": "ms",
  "kinds": {"a100": {"speed": 1.0, "memory": "80GB"}, "old": {"speed": 0.5}},
  "nodes": [{"name": "n0", "kind": "a100", "ranks": 2}, {"name": "n1", "kind": "old", "ranks": 2}],
  "links": {"inside": {"GB_per_s": 200, "latency": 0.01}, "between": {"GB_per_s": 20, "latency": 0.05, "shared": true},
            "n0>n1": {"GB_per_s": 10}}})";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

std::string refusal(const std::string& text) {
  return error_text<DataError>([&] { read_cluster(text); });
}

TEST(ClusterFile, is_read) {
  const Cluster cluster = read_cluster(example);
  const std::vector<Device> devices = cluster.devices();
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_EQ(cluster.name_of(devices[3]), "n1:1");
  EXPECT_EQ(cluster.kind_of(devices[0]).memory_bytes, 80e9);
  EXPECT_EQ(cluster.kind_of(devices[2]).speed, 0.5);
  EXPECT_EQ(cluster.link(devices[0], devices[1]).gigabytes_per_second, 200);
  EXPECT_EQ(cluster.link(devices[0], devices[2]).gigabytes_per_second, 10);
  EXPECT_EQ(cluster.link(devices[2], devices[0]).gigabytes_per_second, 20);
  EXPECT_EQ(read_cluster(write_cluster(cluster)), cluster);
}

RC_GTEST_PROP(ClusterFile, read_after_write_is_identity, ()) {
  const Cluster cluster = any_cluster(4);
  RC_ASSERT(read_cluster(write_cluster(cluster)) == cluster);
}

TEST(ClusterFile, errors_name_the_member_and_what_is_possible) {
  EXPECT_TRUE(
      says(refusal(replaced(example, "\"kind\": \"old\"", "\"kind\": \"odl\"")), "nodes[1].kind", "'odl'", "'old'"));
  EXPECT_TRUE(says(refusal(replaced(example, "n0>n1", "n0>n7")), "'n7'"));
  EXPECT_TRUE(says(refusal(replaced(example, "\"80GB\"", "\"80\"")), "'80'"));
  EXPECT_TRUE(says(refusal(replaced(example, "\"speed\": 0.5", "\"speed\": 0")), "above 0"));
  EXPECT_TRUE(says(refusal(replaced(example, "\"name\": \"n1\"", "\"name\": \"n0\"")), "'n0'"));
  EXPECT_THROW(read_cluster(replaced(example, "\"ms\"", "\"fortnights\"")), ConfigError);
  EXPECT_THROW(first_devices(read_cluster(example), 5), ConfigError);
  EXPECT_EQ(first_devices(read_cluster(example), 3).devices().size(), 3u);
  EXPECT_TRUE(first_devices(read_cluster(example), 2).links.empty());
}

TEST(Site, has_the_slowest_of_its_replicas) {
  const Cluster cluster = read_cluster(example);
  const std::vector<Device> d = cluster.devices();
  LayerCosts costs = even_layers();
  const Site apart(cluster, {{d[0], d[2]}, {d[1], d[3]}}, costs);
  EXPECT_EQ(apart.slowness(Rank(0)), 2);
  EXPECT_EQ(apart.memory(Rank(0)), 80e9);
  EXPECT_EQ(apart.link(Rank(0), Rank(1)).bytes_per_unit, 200e6);
  // Both rings use the link between the nodes: the one without "shared" has 10 GB/s for each of them.
  EXPECT_DOUBLE_EQ(apart.reduction(Rank(0), 40e6), 2 * (0.05 + 20e6 / 10e6));
  const Site beside(cluster, {{d[0], d[1]}, {d[2], d[3]}}, costs);
  EXPECT_EQ(beside.slowness(Rank(0)), 1);
  EXPECT_EQ(beside.slowness(Rank(1)), 2);
  EXPECT_EQ(beside.link(Rank(0), Rank(1)).bytes_per_unit, 10e6);
  EXPECT_EQ(beside.link(Rank(1), Rank(0)).bytes_per_unit, 20e6 / 2);  // shared by two replicas
  costs.time_unit = "s";
  EXPECT_DOUBLE_EQ(Site(cluster, {{d[0]}, {d[1]}}, costs).link(Rank(0), Rank(1)).latency, 1e-5);
}

}  // namespace
}  // namespace penstock::cluster_test
