#include "penstock/plan/partition.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::partition_test {
namespace {

using Sizes = std::vector<std::int64_t>;

std::vector<LayerSize> layers_of(const Sizes& sizes) {
  std::vector<LayerSize> layers;
  for (const std::int64_t size : sizes) layers.push_back({"layer" + std::to_string(layers.size()), size});
  return layers;
}

using Stages = std::vector<int>;

Stages plain(const Partition& partition) {
  Stages stages;
  for (const StageId stage : partition) stages.push_back(stage.value());
  return stages;
}

Stages by_parameters(const Sizes& sizes, int stages) {
  return plain(partition_by_parameters(layers_of(sizes), stages));
}

TEST(PartitionByParameters, minimises_the_largest_stage) {
  const std::vector<std::pair<Sizes, Stages>> cases{
      {{9, 1, 1, 1, 1, 1, 4}, {0, 1, 1, 1, 1, 1, 1}},
      {{1, 2, 3, 4, 5, 6}, {0, 0, 0, 1, 1, 2}},
      {{5}, {0}},
      // The ten parts of ResNet-50 with 1000 classes: conv1..layer3 | layer4..fc.
      {{9'408, 128, 0, 0, 215'808, 1'219'584, 7'098'368, 14'964'736, 0, 2'049'000}, {0, 0, 0, 0, 0, 0, 0, 1, 1, 1}},
      // Layers without parameters stay with the layer before, as a ReLU; but a first one opens the first stage.
      {{10, 0, 10, 0, 10, 0, 10, 0}, {0, 0, 1, 1, 2, 2, 3, 3}},
      {{0, 10, 0, 10}, {0, 0, 0, 1}},
      // No stage is empty if there are enough layers.
      {{10, 0, 10}, {0, 1, 2}},
      {{0, 0, 0, 0}, {0, 0, 0, 1}},
      // The largest stage has 8 in every partition. For the others, 2 and 2 is more even than 1 and 3.
      {{8, 1, 1, 1, 1}, {0, 1, 1, 2, 2}}};
  for (const auto& [sizes, stages] : cases) EXPECT_EQ(by_parameters(sizes, stages.back() + 1), stages);
  EXPECT_EQ(by_parameters({3, 4}, 4), (Stages{2, 3})) << "fewer layers than stages";
  EXPECT_EQ(by_parameters({}, 2), Stages{});
  EXPECT_THROW(by_parameters({1, 2}, 0), ScheduleError);
  EXPECT_THROW(by_parameters({1, -2}, 1), ScheduleError);
}

TEST(PartitionByParameters, large_models) {
  const Sizes sizes(4000, 3'000'000'000'000);
  const Stages partition = by_parameters(sizes, 64);
  for (int stage = 0; stage < 64; ++stage) {
    const auto n = std::count(partition.begin(), partition.end(), stage);
    EXPECT_TRUE(n == 62 || n == 63) << stage << " has " << n;
  }
}

/// The criteria of partition.h, in their order: the largest stage, the sum of squares, the layers in the last stages.
using Cost = std::tuple<std::int64_t, std::int64_t, std::vector<std::int64_t>>;

Cost cost_of(const Sizes& sizes, const std::vector<std::size_t>& starts) {
  Cost cost{0, 0, {}};
  for (std::size_t s = 0; s < starts.size(); ++s) {
    const std::size_t end = s + 1 < starts.size() ? starts[s + 1] : sizes.size();
    std::int64_t size = 0;
    for (std::size_t i = starts[s]; i < end; ++i) size += sizes[i];
    std::get<0>(cost) = std::max(std::get<0>(cost), size);
    std::get<1>(cost) += size * size;
    std::get<2>(cost).insert(std::get<2>(cost).begin(), static_cast<std::int64_t>(end - starts[s]));
  }
  return cost;
}

/// The cost of the best partition without an empty stage, found by enumeration.
Cost best_cost(const Sizes& sizes, std::size_t stages) {
  Cost best{INT64_MAX, 0, {}};
  std::vector<std::size_t> starts{0};
  const std::function<void()> extend = [&] {
    if (starts.size() == stages) {
      best = std::min(best, cost_of(sizes, starts));
      return;
    }
    for (std::size_t next = starts.back() + 1; next < sizes.size(); ++next) {
      starts.push_back(next);
      extend();
      starts.pop_back();
    }
  };
  extend();
  return best;
}

RC_GTEST_PROP(PartitionByParameters, is_the_best_of_all_partitions, ()) {
  const auto sizes = *rc::gen::nonEmpty(
      rc::gen::resize(10, rc::gen::container<Sizes>(rc::gen::element<std::int64_t>(0, 0, 1, 1, 2, 3, 5, 8, 13))));
  const int stages = *rc::gen::inRange(1, static_cast<int>(sizes.size()) + 1);
  const Stages partition = by_parameters(sizes, stages);
  RC_ASSERT(std::is_sorted(partition.begin(), partition.end()));
  std::vector<std::size_t> starts;
  for (int stage = 0; stage < stages; ++stage) {
    const auto first = std::find(partition.begin(), partition.end(), stage);
    RC_ASSERT(first != partition.end());
    starts.push_back(static_cast<std::size_t>(first - partition.begin()));
  }
  RC_ASSERT(cost_of(sizes, starts) == best_cost(sizes, static_cast<std::size_t>(stages)));
  // A stage with parameters begins with a layer that has parameters.
  for (std::size_t s = 1; s < starts.size(); ++s) {
    const std::size_t end = s + 1 < starts.size() ? starts[s + 1] : sizes.size();
    const auto at = [&](std::size_t i) { return sizes.begin() + static_cast<std::ptrdiff_t>(i); };
    RC_ASSERT(sizes[starts[s]] > 0 || std::count(at(starts[s]), at(end), 0) == at(end) - at(starts[s]));
  }
}

TEST(PartitionUniformly, the_last_stages_have_one_layer_more) {
  EXPECT_EQ(plain(partition_uniformly(layers_of(Sizes(10, 1)), 4)), (Stages{0, 0, 1, 1, 2, 2, 2, 3, 3, 3}));
  EXPECT_EQ(plain(partition_uniformly(layers_of(Sizes(4, 1)), 2)), (Stages{0, 0, 1, 1}));
  EXPECT_EQ(plain(partition_uniformly(layers_of(Sizes(2, 1)), 4)), (Stages{2, 3}));
  EXPECT_THROW(partition_uniformly({}, 0), ScheduleError);
}

const std::vector<LayerSize> layers{{"layer1", 8}, {"relu1", 0}, {"layer2", 2}, {"relu2", 0}, {"layer3", 2}};

Stages stages_of(std::string_view partition, int stages) { return plain(partition_layers(partition, layers, stages)); }

TEST(PartitionLayers, accepts_the_name_of_a_rule) {
  EXPECT_EQ(stages_of("parameters", 2), (Stages{0, 0, 1, 1, 1}));
  EXPECT_EQ(stages_of("uniform", 2), (Stages{0, 0, 1, 1, 1}));
  EXPECT_EQ(stages_of("uniform", 3), (Stages{0, 1, 1, 2, 2}));
}

TEST(PartitionLayers, accepts_names_and_numbers) {
  EXPECT_EQ(stages_of("layer3", 2), (Stages{0, 0, 0, 0, 1}));
  EXPECT_EQ(stages_of("4", 2), (Stages{0, 0, 0, 0, 1}));
  EXPECT_EQ(stages_of("layer2,4", 3), (Stages{0, 0, 1, 1, 2}));
  EXPECT_EQ(stages_of("", 1), (Stages{0, 0, 0, 0, 0}));
}

TEST(PartitionLayers, a_name_means_its_first_layer_and_precedes_a_number) {
  const std::vector<LayerSize> odd{{"a", 1}, {"3", 1}, {"b", 1}, {"b", 1}};
  EXPECT_EQ(plain(partition_layers("3", odd, 2)), (Stages{0, 1, 1, 1}));
  EXPECT_EQ(plain(partition_layers("b", odd, 2)), (Stages{0, 0, 1, 1}));
}

// An embedding, three blocks of two layers each, and a heavy head.
const std::vector<LayerSize> deep{{"embed", 0},
                                  {"b.0.up", 4, "b.0", "b.0"},
                                  {"add", 0, "b.0", "b.0"},
                                  {"b.1.up", 4, "b.1.part", "b.1"},
                                  {"add_2", 0, "b.1", "b.1"},
                                  {"add_3", 0, "b.2", "b.2"},
                                  {"b.2.up", 4, "b.2", "b.2"},
                                  {"head", 6}};

Stages stages_of_deep(std::string_view partition, int stages) {
  return plain(partition_layers(partition, deep, stages));
}

TEST(PartitionLayers, automatic_partitions_cut_no_block) {
  EXPECT_EQ(stages_of_deep("parameters", 2), (Stages{0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(stages_of_deep("parameters", 3), (Stages{0, 0, 0, 0, 0, 1, 1, 2}));
  EXPECT_EQ(stages_of_deep("parameters", 5), (Stages{0, 1, 1, 2, 2, 3, 3, 4}));
  EXPECT_EQ(stages_of_deep("uniform", 3), (Stages{0, 0, 0, 1, 1, 2, 2, 2})) << "a block each";
  EXPECT_EQ(remark_on_blocks({"", "b", "b", "c", ""}, 4), "");
}

TEST(PartitionLayers, more_stages_than_blocks_cut_them) {
  const Stages six = stages_of_deep("parameters", 6);
  EXPECT_EQ(six.back(), 5);
  std::vector<std::string> blocks;
  for (const LayerSize& layer : deep) blocks.push_back(layer.block);
  EXPECT_EQ(count_units(blocks), 5);
  EXPECT_EQ(remark_on_blocks(blocks, 6), "5 blocks and layers between them are too few for 6 stages");
  EXPECT_EQ(remark_on_blocks({"", ""}, 3), "") << "without blocks there is nothing to cut";
}

TEST(PartitionLayers, a_cell_names_its_first_layer) {
  EXPECT_EQ(stages_of_deep("b.2", 2), (Stages{0, 0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(stages_of_deep("b.1,head", 3), (Stages{0, 0, 0, 1, 1, 1, 1, 2}));
  EXPECT_EQ(stages_of_deep("add_2", 2), (Stages{0, 0, 0, 0, 1, 1, 1, 1})) << "a named layer may be inside a block";
}

std::string error_text(std::string_view partition, int stages) {
  return test::error_text<ScheduleError>([&] { partition_layers(partition, layers, stages); });
}

TEST(PartitionLayers, errors_list_the_layers) {
  const std::string known = "; the layers are 0 layer1, 1 relu1, 2 layer2, 3 relu2, 4 layer3";
  for (const char* absent : {"layer9", "5", "-1"})
    EXPECT_EQ(error_text(absent, 2), say("partition '", absent, "': there is no layer or Cell '", absent, "'", known));
  EXPECT_TRUE(test::says(error_text("layer2", 3), "partition 'layer2' names 1 layers, but 3 stages need 2: ", known));
  EXPECT_TRUE(test::says(error_text("layer2,relu1", 3), "stage 2 would start at layer 1 (relu1), not after layer 2 ",
                         "name them in ascending order", known));
  EXPECT_TRUE(test::says(error_text("0", 2), "stage 1 would start at layer 0 (0), not after layer 0 ", known));
  EXPECT_NE(error_text("layer2,", 3), "[no error]");
  EXPECT_NE(error_text("layer2", 0), "[no error]");
}
}  // namespace
}  // namespace penstock::partition_test
