#include "penstock/zoo/mlp.h"
#include "penstock/model/graph.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::test::mlp_test {
namespace {

using Widths = std::vector<std::int64_t>;

using Names = std::vector<std::string>;

/// The names of the nodes, none of which has a stage.
Names nodes_of(Mlp& network) {
  Names names;
  for (const Node& node : trace_graph(network).nodes) {
    names.push_back(node.name);
    EXPECT_EQ(node.stage, std::nullopt) << node.name;
  }
  return names;
}

TEST(Mlp, layers) {
  Mlp network({.inputs = 12, .hidden = {8, 6}, .classes = 3});
  EXPECT_EQ(nodes_of(network), (Names{"flatten", "layer1", "relu1", "layer2", "relu2", "layer3"}));
  Names parameters;
  for (const auto& [name, value] : network.named_parameters()) parameters.push_back(say(name, " ", value.sizes()));
  EXPECT_EQ(parameters, (Names{"layer1.weight [8, 12]", "layer1.bias [8]", "layer2.weight [6, 8]", "layer2.bias [6]",
                               "layer3.weight [3, 6]", "layer3.bias [3]"}));
}

TEST(Mlp, drops_out_after_every_hidden_layer) {
  Mlp network({.inputs = 12, .hidden = {64, 64}, .classes = 3, .dropout = 0.5});
  EXPECT_EQ(nodes_of(network),
            (Names{"flatten", "layer1", "relu1", "dropout1", "layer2", "relu2", "dropout2", "layer3"}));
  EXPECT_EQ(network.named_parameters().size(), 6U);
  const torch::Tensor images = torch::randn({5, 12});
  EXPECT_FALSE(torch::equal(network(Value(images)).tensor(), network(Value(images)).tensor()));
  network.eval();
  EXPECT_TRUE(torch::equal(network(Value(images)).tensor(), network(Value(images)).tensor()));
}

TEST(Mlp, equals_the_plain_network) {
  Mlp network({.inputs = 12, .hidden = {8}, .classes = 3});
  const torch::Tensor images = torch::randn({5, 1, 3, 4});
  const torch::Tensor logits = network(Value(images)).tensor();
  const auto p = network.named_parameters();
  const torch::Tensor hidden = torch::relu(torch::linear(images.view({5, 12}), p[0].second, p[1].second));
  EXPECT_TRUE(torch::equal(logits, torch::linear(hidden, p[2].second, p[3].second)));
}

TEST(Mlp, without_hidden_layers_is_one_linear_layer) {
  Mlp network({.inputs = 4, .hidden = {}, .classes = 2});
  EXPECT_EQ(network(Value(torch::randn({3, 4}))).tensor().sizes(), (torch::IntArrayRef{3, 2}));
  EXPECT_EQ(network.named_parameters().size(), 2U);
}

TEST(ParseWidths, lists_and_repetitions) {
  EXPECT_EQ(parse_widths("512"), (Widths{512}));
  EXPECT_EQ(parse_widths("512,256"), (Widths{512, 256}));
  EXPECT_EQ(parse_widths("8x3"), (Widths{8, 8, 8}));
  EXPECT_EQ(parse_widths("512,4x2,1"), (Widths{512, 4, 4, 1}));
}

TEST(ParseWidths, names_the_invalid_item) {
  EXPECT_EQ(error_text<ConfigError>([] { parse_widths("512,abc,8"); }),
            "'abc' in '512,abc,8' is not a layer width: write widths as 512,512 or 1024x8");
  for (const char* text : {"", ",", "512,", ",512", "0", "-3", "1.5", "x", "x8", "8x", "8x0", "8x-1", "8x2x2", " 8",
                           "8 ", "+8", "8x1000000000", "99999999999999999999", "0x10"})
    EXPECT_TRUE(says(error_text<ConfigError>([&] { parse_widths(text); }), "is not a layer width", say("'", text, "'")))
        << text;
}

}  // namespace
}  // namespace penstock::test::mlp_test
