#include "penstock/plan/partition_search.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

namespace penstock::partition_search_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// The rank of each stage: stage s is on rank s mod `ranks`.
std::vector<Rank> round_robin(int ranks, int chunks) {
  std::vector<Rank> placement;
  for (int s = 0; s < ranks * chunks; ++s) placement.push_back(Rank(s % ranks));
  return placement;
}

/// The rank of each stage in `waves` waves that go down and up the ranks alternately.
std::vector<Rank> zigzag(int ranks, int waves) {
  std::vector<Rank> placement;
  for (int wave = 0; wave < waves; ++wave)
    for (int k = 0; k < ranks; ++k) placement.push_back(Rank(wave % 2 == 0 ? k : ranks - 1 - k));
  return placement;
}

/// A random problem: layers have weights, boundaries have costs, and ranks have capacities for the sizes of layers.
struct Instance {
  std::vector<int> weights;
  std::vector<int> borders;  // per layer: the cost of a boundary before it
  std::vector<int> sizes;
  std::vector<int> capacity;  // per rank: the upper bound of its size
  std::vector<Rank> placement;

  int sum(const std::vector<int>& of, LayerRange s) const {
    return std::accumulate(of.begin() + s.begin, of.begin() + s.end, 0);
  }
  double least(Rank rank, std::span<const LayerRange> stages) const {
    double weight = 0, size = 0;
    for (const LayerRange& stage : stages) {
      weight += sum(weights, stage);
      size += sum(sizes, stage);
    }
    return size > capacity[rank.index()] ? infinity : weight;
  }
  double cost(Rank rank, std::span<const LayerRange> stages) const {
    double cost = least(rank, stages);
    for (const LayerRange& stage : stages)
      if (stage.begin > 0) cost += borders[static_cast<std::size_t>(stage.begin)];
    return cost;
  }
  PartitionProblem problem() const {
    return {.layers = static_cast<int>(weights.size()),
            .rank_of_stage = placement,
            .cost = [this](Rank rank, std::span<const LayerRange> stages) { return cost(rank, stages); },
            .least = [this](Rank rank, std::span<const LayerRange> stages) { return least(rank, stages); },
            .share = [this](LayerRange range) { return sum(weights, range); }};
  }
  double cost_of(const Stages& stages) const {
    double most = 0;
    for (std::size_t rank = 0; rank < capacity.size(); ++rank) {
      std::vector<LayerRange> own;
      for (std::size_t s = 0; s < stages.size(); ++s)
        if (placement[s].index() == rank) own.push_back(stages[s]);
      most = std::max(most, cost(Rank(static_cast<int>(rank)), own));
    }
    return most;
  }
  /// The cost of the best partition, found by enumeration.
  double cheapest() const {
    Stages stages;
    double best = infinity;
    const auto n = static_cast<int>(weights.size());
    const auto extend = [&](const auto& self, int begin) -> void {
      const auto left = static_cast<int>(placement.size() - stages.size());
      if (left == 0) best = std::min(best, cost_of(stages));
      if (left == 0) return;
      for (int end = left == 1 ? n : begin + 1; end <= n - (left - 1); ++end) {
        stages.push_back({begin, end});
        self(self, end);
        stages.pop_back();
      }
    };
    extend(extend, 0);
    return best;
  }
};

Instance any_instance(std::vector<Rank> placement, int most_layers) {
  const auto stages = static_cast<int>(placement.size());
  const int n = *rc::gen::inRange(stages, std::max(stages, most_layers) + 1);
  const auto some = [&](int count, int below) {
    return *rc::gen::container<std::vector<int>>(static_cast<std::size_t>(count), rc::gen::inRange(0, below));
  };
  Instance instance{some(n, 20), some(n, *rc::gen::element(1, 8)), some(n, 10), {}, std::move(placement)};
  const int ranks = std::max_element(instance.placement.begin(), instance.placement.end())->value() + 1;
  const int all = instance.sum(instance.sizes, {0, n});
  for (int rank = 0; rank < ranks; ++rank)
    instance.capacity.push_back(*rc::gen::element(all, all, *rc::gen::inRange(0, all + 1)));
  return instance;
}

void expect_whole(const Stages& stages, int layers) {
  RC_ASSERT(stages.front().begin == 0);
  RC_ASSERT(stages.back().end == layers);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    RC_ASSERT(stages[s].begin < stages[s].end);
    if (s > 0) RC_ASSERT(stages[s].begin == stages[s - 1].end);
  }
}

void expect_cheapest(const Instance& instance) {
  const double cheapest = instance.cheapest();
  const auto partition = cheapest_partition(instance.problem());
  RC_CLASSIFY(cheapest < infinity, "possible");
  RC_ASSERT(partition.has_value() == (cheapest < infinity));
  if (!partition) return;
  expect_whole(partition->stages, static_cast<int>(instance.weights.size()));
  RC_ASSERT(partition->exact);
  RC_ASSERT(partition->cost == cheapest);
  RC_ASSERT(instance.cost_of(partition->stages) == cheapest);
}

TEST(FoundPartition, one_stage_per_rank_is_exact) {
  EXPECT_TRUE(rc::check("== the best of all partitions",
                        [] { expect_cheapest(any_instance(round_robin(*rc::gen::inRange(1, 6), 1), 11)); }));
}

TEST(FoundPartition, interleaved_stages_are_exact) {
  EXPECT_TRUE(rc::check("== the best of all partitions",
                        [] { expect_cheapest(any_instance(round_robin(*rc::gen::inRange(1, 4), 2), 11)); }));
  EXPECT_TRUE(rc::check("== the best of all partitions, 3 and 4 chunks", [] {
    expect_cheapest(any_instance(round_robin(*rc::gen::inRange(1, 3), *rc::gen::inRange(3, 5)), 11));
  }));
}

TEST(FoundPartition, a_V_and_a_W_are_exact) {
  EXPECT_TRUE(rc::check("== the best of all partitions",
                        [] { expect_cheapest(any_instance(zigzag(*rc::gen::inRange(2, 5), 2), 12)); }));
  EXPECT_TRUE(rc::check("== the best of all partitions, 3 and 4 waves",
                        [] { expect_cheapest(any_instance(zigzag(2, *rc::gen::inRange(3, 5)), 12)); }));
}

TEST(FoundPartition, other_placements_give_a_partition_that_is_not_exact) {
  EXPECT_TRUE(rc::check("no better than the best of all partitions", [] {
    const Instance instance = any_instance({Rank(0), Rank(1), Rank(0), Rank(0), Rank(1)}, 10);
    const auto partition = cheapest_partition(instance.problem());
    if (!partition) return;
    expect_whole(partition->stages, static_cast<int>(instance.weights.size()));
    RC_ASSERT(!partition->exact);
    RC_ASSERT(partition->cost == instance.cost_of(partition->stages));
    RC_ASSERT(partition->cost >= instance.cheapest());
  }));
}

Instance even(int layers, std::vector<Rank> placement, int ranks) {
  const auto n = static_cast<std::size_t>(layers);
  return {std::vector<int>(n, 3), std::vector<int>(n, 0), std::vector<int>(n, 0),
          std::vector<int>(static_cast<std::size_t>(ranks), 1), std::move(placement)};
}

TEST(FoundPartition, many_layers) {
  EXPECT_EQ(cheapest_partition(even(2000, round_robin(64, 1), 64).problem())->cost, 3 * 32);
  EXPECT_EQ(cheapest_partition(even(130, zigzag(8, 2), 8).problem())->cost, 3 * 17);
  EXPECT_EQ(cheapest_partition(even(130, round_robin(8, 2), 8).problem())->cost, 3 * 17);
}

TEST(FoundPartition, an_incomplete_search_returns_the_best_known_partition) {
  const Instance instance = even(40, round_robin(4, 2), 4);
  const auto known = cheapest_partition(instance.problem());
  const auto hasty = cheapest_partition(instance.problem(), {known->stages}, 3);
  EXPECT_FALSE(hasty->exact);
  EXPECT_EQ(hasty->cost, known->cost);
}

TEST(FoundPartition, the_search_ends_at_cost_0) {
  Instance costless = even(4000, round_robin(4, 4), 4);  // 10^10 possible borders between the waves
  std::fill(costless.weights.begin(), costless.weights.end(), 0);
  const auto partition = cheapest_partition(costless.problem());
  EXPECT_EQ(partition->cost, 0);
  EXPECT_TRUE(partition->exact);
}

TEST(FoundPartition, fewer_layers_than_stages) {
  EXPECT_FALSE(cheapest_partition(even(3, round_robin(2, 2), 2).problem()).has_value());
}

}  // namespace
}  // namespace penstock::partition_search_test
