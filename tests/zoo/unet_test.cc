#include "penstock/zoo/unet.h"
#include "penstock/model/graph.h"
#include "penstock/model/stages.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "penstock/pipeline/pipeline.h"
#include "tests/base/error_text.h"
#include "tests/support/expect_same.h"

namespace penstock::test::unet_test {
namespace {

constexpr UnetOptions small{.in_channels = 1, .out_channels = 2, .width = 2, .levels = 2};

TEST(Unet, preserves_the_image_size) {
  Unet network(small);
  for (const auto& [height, width] : {std::pair{16, 16}, std::pair{13, 10}, std::pair{1, 3}})
    EXPECT_EQ(network(Value(torch::randn({2, 1, height, width}))).tensor().sizes(),
              (torch::IntArrayRef{2, 2, height, width}));
}

TEST(Unet, every_level_reads_its_skip_connection) {
  Unet network(small);
  const Graph graph = trace_graph(network);
  std::map<std::string, std::vector<std::string>> sources;
  for (const Node& node : graph.nodes)
    for (const ValueRef& input : node.inputs) sources[node.name].push_back(graph.name_of(input));
  const auto relu_of = [&](const std::string& convolution) {
    const auto found = std::find_if(sources.begin(), sources.end(), [&](const auto& node) {
      return node.first.find("relu") != std::string::npos && node.second.front() == convolution;
    });
    return found->first;
  };
  std::vector<std::string> skips;
  for (const auto& [name, inputs] : sources)
    if (name.find("join") != std::string::npos) skips.push_back(inputs.at(1));
  EXPECT_EQ(skips, (std::vector<std::string>{relu_of("down1.conv2"), relu_of("down0.conv2")}));
}

TEST(Unet, refuses_invalid_options) {
  const auto refusal = [](const UnetOptions& options) {
    return error_text<ConfigError>([&] { Unet network(options); });
  };
  EXPECT_EQ(refusal({.in_channels = 0}), "a U-Net from 0 to 3 channels: both are at least 1");
  EXPECT_EQ(refusal({.width = 0}), "a U-Net of width 0: it needs at least 1 channel");
  EXPECT_EQ(refusal({.levels = 0}), "a U-Net of 0 levels: give 1 to 10");
}

Trained train(int stages, const std::string& schedule) {
  Unet network(small);
  World world({.stages = stages});
  Pipeline pipeline(world, network, squared_error, {.micro_batches = 4, .schedule = schedule, .partition = "uniform"});
  if (stages > 1) {
    // The last stage reads the first level, which is sent there directly.
    const std::vector<Port>& sends = pipeline.stages().parts.front().sends;
    EXPECT_TRUE(std::any_of(sends.begin(), sends.end(), [](const Port& port) { return port.peer.value() >= 2; }));
  }
  pipeline.optimize_with([](auto parameters) { return torch::optim::SGD(parameters, 1e-1); });
  torch::manual_seed(1);
  const torch::Tensor images = torch::randn({6, 1, 9, 8});
  Trained outcome;
  for (int step = 0; step < 3; ++step)
    outcome.losses.push_back(pipeline.train_step(images, images.expand({6, 2, 9, 8}).contiguous()).loss());
  outcome.state = pipeline.state_dict();
  return outcome;
}

TEST(Unet, trains_bitwise_equal_with_skips_over_stages) {
  const Trained one = train(1, "1f1b");
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const int stages : {3, 4})
    for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) expect_same(one, train(stages, schedule), schedule);
}

}  // namespace
}  // namespace penstock::test::unet_test
