#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/plan/partition.h"
#include "tests/base/error_text.h"

namespace penstock::partition_by_name_test {
namespace {

const std::vector<LayerSize> layers{{"layer1", 8}, {"relu1", 0}, {"layer2", 2}, {"relu2", 0}, {"layer3", 2}};

std::vector<int> stages_of(std::string_view partition, int stages) {
  std::vector<int> result;
  for (const StageId stage : partition_layers(partition, layers, stages)) result.push_back(stage.value());
  return result;
}

using Stages = std::vector<int>;

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
  EXPECT_EQ(partition_layers("3", odd, 2), (Partition{StageId(0), StageId(1), StageId(1), StageId(1)}));
  EXPECT_EQ(partition_layers("b", odd, 2), (Partition{StageId(0), StageId(0), StageId(1), StageId(1)}));
}

std::string error_text(std::string_view partition, int stages) {
  return test::error_text<ScheduleError>([&] { partition_layers(partition, layers, stages); });
}

TEST(PartitionLayers, errors_list_the_layers) {
  const std::string known = "; the layers are 0 layer1, 1 relu1, 2 layer2, 3 relu2, 4 layer3";
  EXPECT_EQ(error_text("layer9", 2), "partition 'layer9': there is no layer 'layer9'" + known);
  EXPECT_EQ(error_text("5", 2), "partition '5': there is no layer '5'" + known);
  EXPECT_EQ(error_text("-1", 2), "partition '-1': there is no layer '-1'" + known);
  EXPECT_EQ(error_text("layer2", 3),
            "partition 'layer2' names 1 layers, but 3 stages need 2: the first layer of every stage "
            "but the first" +
                known);
  EXPECT_EQ(error_text("layer2,relu1", 3),
            "partition 'layer2,relu1': stage 2 would start at layer 1 (relu1), not after layer "
            "2 where stage 1 begins; name them in ascending order" +
                known);
  EXPECT_EQ(error_text("0", 2),
            "partition '0': stage 1 would start at layer 0 (0), not after layer 0 where stage 0 begins; "
            "name them in ascending order" +
                known);
  EXPECT_NE(error_text("layer2,", 3), "[no error]");
  EXPECT_NE(error_text("layer2", 0), "[no error]");
}

}  // namespace
}  // namespace penstock::partition_by_name_test
