#include "penstock/zoo/resnet.h"
#include "penstock/model/graph.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"

namespace penstock::test::resnet_test {
namespace {

/// Small enough to be trained in a test.
constexpr ResnetOptions small{.depth = 18, .classes = 5, .stem = ResnetStem::cifar, .width = 4};

std::int64_t numbers_in(const std::map<std::string, torch::Tensor>& parameters) {
  std::int64_t count = 0;
  for (const auto& [name, value] : parameters) count += value.numel();
  return count;
}

std::map<std::string, torch::Tensor> parameters_of(Resnet& network) {
  const auto named = network.named_parameters();
  return {named.begin(), named.end()};
}

std::vector<std::int64_t> shape(Cell& network, const std::vector<std::int64_t>& images) {
  const torch::NoGradGuard no_grad;
  return network(Value(torch::randn(images))).tensor().sizes().vec();
}

TEST(Resnet, has_the_parameters_of_the_paper) {
  Resnet network({.depth = 50});
  const auto parameters = parameters_of(network);
  using Sizes = torch::IntArrayRef;
  EXPECT_EQ(numbers_in(parameters), 25557032);
  EXPECT_EQ(parameters.size(), 161U);
  EXPECT_EQ(parameters.at("head.conv1.weight").sizes(), (Sizes{64, 3, 7, 7}));
  EXPECT_EQ(parameters.at("layer1.block0.conv1.weight").sizes(), (Sizes{64, 64, 1, 1}));
  EXPECT_EQ(parameters.at("layer1.block0.shortcut.weight").sizes(), (Sizes{256, 64, 1, 1}));
  EXPECT_EQ(parameters.at("layer3.block5.bn3.bias").sizes(), (Sizes{1024}));
  EXPECT_EQ(parameters.at("layer4.block0.conv2.weight").sizes(), (Sizes{512, 512, 3, 3}));
  EXPECT_EQ(parameters.at("fc.weight").sizes(), (Sizes{1000, 2048}));
  EXPECT_FALSE(parameters.contains("layer1.block1.shortcut.weight"));
}

TEST(Resnet, has_the_right_initial_distributions) {
  Resnet network({.depth = 18});
  auto parameters = parameters_of(network);
  EXPECT_EQ(numbers_in(parameters), 11689512);
  // Fan-out preserves the variance of gradients.
  EXPECT_NEAR(parameters.at("layer3.block1.conv1.weight").std().item<double>(), std::sqrt(2.0 / (256 * 9)), 1e-3);
  EXPECT_NEAR(parameters.at("layer2.block0.shortcut.weight").std().item<double>(), std::sqrt(2.0 / 128), 5e-3);
  EXPECT_TRUE(parameters.at("layer3.block1.bn1.weight").eq(1).all().item<bool>());
  EXPECT_TRUE(parameters.at("layer3.block1.bn1.bias").eq(0).all().item<bool>());
}

TEST(Resnet, shapes) {
  for (const ResnetVariant variant : {ResnetVariant::v1, ResnetVariant::v1_5})
    for (const int depth : {18, 50}) {
      Resnet network({.depth = depth, .classes = 7, .variant = variant, .width = 4});
      EXPECT_EQ(shape(network.head, {1, 3, 224, 224}), (std::vector<std::int64_t>{1, 4, 56, 56}));
      EXPECT_EQ(shape(network.layer1, {1, 4, 56, 56}), (std::vector<std::int64_t>{1, depth == 50 ? 16 : 4, 56, 56}));
      EXPECT_EQ(shape(network, {2, 3, 32, 32}), (std::vector<std::int64_t>{2, 7}));
      EXPECT_EQ(shape(network, {2, 3, 45, 51}), (std::vector<std::int64_t>{2, 7})) << "of any size";
    }
  Resnet network(small);
  EXPECT_EQ(shape(network.head, {1, 3, 32, 32}), (std::vector<std::int64_t>{1, 4, 32, 32}));
}

const Node& node_called(const Graph& graph, const std::string& name) {
  const auto found =
      std::find_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.name == name; });
  EXPECT_NE(found, graph.nodes.end()) << name;
  return *found;
}

// The variants differ in the convolution with stride 2: conv1 or conv2.
TEST(Resnet, variants_differ_in_the_strided_convolution) {
  for (const ResnetVariant variant : {ResnetVariant::v1, ResnetVariant::v1_5}) {
    Resnet network({.depth = 50, .classes = 2, .variant = variant, .width = 2});
    const Graph graph = trace_graph(network);
    const auto halves = [&](const char* name) {
      const auto layer = node_called(graph, name).layer->factory.build();
      return std::dynamic_pointer_cast<torch::nn::Conv2dImpl>(layer.module)->options.stride()->at(0) == 2;
    };
    EXPECT_EQ(halves("layer2.block0.conv1"), variant == ResnetVariant::v1);
    EXPECT_EQ(halves("layer2.block0.conv2"), variant == ResnetVariant::v1_5);
    EXPECT_TRUE(halves("layer2.block0.shortcut"));
    EXPECT_FALSE(halves("layer2.block1.conv1") || halves("layer2.block1.conv2") || halves("layer1.block0.conv2"));
  }
}

// 7x7 with stride 2 over 224 pixels needs a padding of 5: 2 before the image and 3 after it.
TEST(Resnet, same_padding_puts_the_larger_half_last) {
  Resnet network({.variant = ResnetVariant::v1});
  const Graph graph = trace_graph(network);
  const auto pad = std::find_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return !n.is_layer(); });
  const torch::Tensor padded = pad->function({torch::ones({1, 1, 224, 223})}).front();
  ASSERT_EQ(padded.sizes(), (torch::IntArrayRef{1, 1, 229, 229}));
  EXPECT_TRUE(padded.narrow(2, 2, 224).narrow(3, 3, 223).eq(1).all().item<bool>());
  EXPECT_EQ(padded.sum().item<double>(), 224 * 223);
}

TEST(Resnet, blocks_with_last_norm_0_start_as_identity) {
  for (const int depth : {18, 50}) {
    Resnet network({.depth = depth, .classes = 2, .width = 2, .last_norm = 0});
    const auto parameters = parameters_of(network);
    const std::string last = depth == 18 ? "bn2" : "bn3";
    EXPECT_TRUE(parameters.at("layer3.block1." + last + ".weight").eq(0).all().item<bool>());
    EXPECT_TRUE(parameters.at("layer3.block1.bn1.weight").eq(1).all().item<bool>());
    EXPECT_TRUE(parameters.at("layer3.block0.shortcut_bn.weight").eq(1).all().item<bool>());
  }
}

TEST(Resnet, refuses_invalid_options) {
  const auto refusal = [](const ResnetOptions& options) {
    return error_text<ConfigError>([&] { Resnet network(options); });
  };
  EXPECT_EQ(refusal({.depth = 152}), "a ResNet of depth 152: there are 18, 34, 50 and 101");
  EXPECT_EQ(refusal({.classes = 0}), "a ResNet for 0 classes: it needs at least 1");
  EXPECT_EQ(refusal({.image_channels = 0}), "images of 0 channels: they have at least 1");
  EXPECT_EQ(refusal({.width = 0}), "a ResNet of width 0: it needs at least 1 channel");
  EXPECT_EQ(refusal({.norm_momentum = 99}), "BatchNorm momentum 99: give the share of the new statistics, 0 to 1");
}

Trained train(Resnet& network, int stages) {
  World world({.stages = stages});
  Pipeline pipeline(world, network, cross_entropy, {.micro_batches = 3});
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-2); });
  torch::manual_seed(1);
  Trained outcome;
  for (int step = 0; step < 2; ++step)
    outcome.losses.push_back(
        pipeline.train_step(torch::randn({8, 3, 16, 16}), torch::randint(0, 5, {8}, torch::kInt64)).loss());
  outcome.state = pipeline.state_dict();
  return outcome;
}

// Stage annotations on the public members; the mean over the image has the stage of its input.
TEST(Resnet, trains_bitwise_equal_with_annotated_parts) {
  Resnet whole(small), partition(small);
  partition.head.pipeline_stage = partition.layer1.pipeline_stage = partition.layer2.pipeline_stage = 0;
  partition.layer3.pipeline_stage = partition.layer4.pipeline_stage = partition.fc.pipeline_stage = 1;
  const Trained one = train(whole, 1), two = train(partition, 2);
  expect_same(one, two);
  EXPECT_TRUE(one.state.contains("layer4.block1.bn2.running_mean"));
}

}  // namespace
}  // namespace penstock::test::resnet_test
