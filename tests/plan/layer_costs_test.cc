#include "penstock/plan/layer_costs.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/plan/small_costs.h"

namespace penstock::layer_costs_test {
namespace {

constexpr const char* smallest = R"({
  "penstock_layer_costs": 1,
  "time_unit": "ms",
  "ranks": 2,
  "samples": 10,
  "micro_batch_size": 4,
  "link": {"bytes_per_unit": 1000, "latency": 0.5},
  "layers": [
    {"name": "a", "forward": 1, "input_grad": 0, "weight_grad": 2.5,
     "activation_bytes": 7, "parameter_bytes": 8, "boundary_bytes": 9}
  ]
})";

/// `smallest` with `from` replaced by `to`.
std::string with(const std::string& from, const std::string& to) {
  std::string text = smallest;
  return text.replace(text.find(from), from.size(), to);
}

/// `smallest` with one more member.
std::string with_option(const std::string& name, const std::string& value) {
  return with("\"link\"", "\"" + name + "\": " + value + ", \"link\"");
}

std::string complaint_of(const std::string& text) {
  return test::error_text<DataError>([&] { read_layer_costs(text); });
}

TEST(LayerCosts, reads_all_required_members) {
  const LayerCosts costs = read_layer_costs(smallest);
  EXPECT_EQ(costs.time_unit, "ms");
  EXPECT_EQ(costs.ranks, 2);
  EXPECT_EQ(costs.samples, 10);
  EXPECT_EQ(costs.micro_batch_size, 4);
  EXPECT_EQ(costs.link, (LinkSpeed{.bytes_per_unit = 1000, .latency = 0.5}));
  EXPECT_EQ(costs.instruction_overhead, 0);
  EXPECT_FALSE(costs.memory_cap_bytes.has_value());
  ASSERT_EQ(costs.layers.size(), 1u);
  EXPECT_EQ(costs.layers[0], (LayerCost{"a", 1, 0, 2.5, 7, 8, 9}));
}

TEST(LayerCosts, a_layer_may_name_its_block) {
  const LayerCosts costs = read_layer_costs(with("_bytes\": 9", "_bytes\": 9, \"block\": \"block0\""));
  EXPECT_EQ(costs.layers[0].block, "block0");
  EXPECT_EQ(read_layer_costs(write_layer_costs(costs)), costs);
  EXPECT_TRUE(test::says(complaint_of(with("_bytes\": 9", "_bytes\": 9, \"block\": \"\"")), "layers[0].block"));
}

TEST(LayerCosts, reads_optional_members_of_a_layer) {
  const LayerCosts costs =
      read_layer_costs(with("_bytes\": 9",
                            "_bytes\": 9, \"weight_grad_fused\": 1.5, \"backward\": 0, \"update\": 4, "
                            "\"forward_cached\": 0.5, \"input_grad_cached\": 0.25"));
  EXPECT_EQ(costs.layers[0].forward_cached, 0.5);
  EXPECT_EQ(costs.layers[0].input_grad_cached, 0.25);
  EXPECT_EQ(read_layer_costs(write_layer_costs(costs)), costs);
  EXPECT_EQ(costs.layers[0].weight_grad_fused, 1.5);
  EXPECT_EQ(costs.layers[0].backward, 0);
  EXPECT_EQ(costs.layers[0].update, 4);
  EXPECT_EQ(costs.slowdown_under_load, 1);
  EXPECT_EQ(read_layer_costs(with_option("contention", "1.25")).slowdown_under_load, 1.25);
  EXPECT_EQ(read_layer_costs(write_layer_costs(read_layer_costs(with_option("spread", "0.2")))).spread, 0.2);
  EXPECT_TRUE(read_layer_costs(smallest).first_stage_splits);
  EXPECT_FALSE(read_layer_costs(write_layer_costs(read_layer_costs(with_option("first_stage_splits", "false"))))
                   .first_stage_splits);
  EXPECT_EQ(write_layer_costs(read_layer_costs(smallest)).find("contention"), std::string::npos);
  EXPECT_EQ(write_layer_costs(read_layer_costs(smallest)).find("update"), std::string::npos);
}

TEST(LayerCosts, ten_samples_in_fours_are_three_micro_batches) {
  EXPECT_EQ(candidate_micro_batches(read_layer_costs(smallest)), std::vector<int>{3});
  EXPECT_EQ(candidate_micro_batches(read_layer_costs(with_option("micro_batches", "[1, 10]"))),
            (std::vector<int>{1, 10}));
}

TEST(LayerCosts, errors_name_the_member_and_its_possible_values) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"[]", " is not a JSON object"},
      {"{}", R"("penstock_layer_costs": 1 in its one object: docs/cost_file.md describes the format)"},
      {R"({"penstock_costs": 1})", " has costs of stages, which `penstock simulate --cost-file` takes"},
      {"{", " is not JSON: it breaks off at line 1, column 2; truncated?"},
      {"{\"a\":" + std::string(500, '['), " nests deeper than 8 levels"},
      {"{\"a\":[{}]}", " has an empty object in a list"},
      {with("costs\": 1", "costs\": 2"), "'s penstock_layer_costs is 2: 1 to 1 is possible"},
      {with("\"ranks\": 2", "\"ranks\": 0"), "'s ranks is 0: 1 to 65536 is possible"},
      {with("\"ranks\": 2", "\"ranks\": 2.5"), "'s ranks is not a whole number"},
      {with("\"ranks\": 2,", ""), " has no member 'ranks'"},
      {with("\"ranks\": 2", "\"ranks\": 2, \"ranks\": 3"), " has the member 'ranks' twice in one object"},
      {with("\"latency\"", "\"delay\""),
       "'s link has a member 'delay', which is not known (did you mean 'latency'?); there are bytes_per_unit, "},
      {with("\"name\"", "\"nam\""), "layers[0] has a member 'nam'"},
      {with("\"forward\": 1", "\"forward\": -1"), "'s layers[0].forward is -1: a finite number >= 0 is needed"},
      {with("_bytes\": 7", "_bytes\": 7.5"),
       "'s layers[0].activation_bytes is 7.5: bytes are a whole number up to 1e+14"},
      {with("\"a\"", "\"\""), "'s layers[0].name must be one line of text without control characters, and not empty"},
      {with("\"a\"", "\"a, b\""), "'s layers[0].name is 'a, b': commas separate the names in a list of layers"},
      {with_option("micro_batches", "[2, 11]"), "'s micro_batches[1] is 11: 1 to 10 is possible"},
      {with_option("micro_batches", "[2, 2]"), "'s micro_batches[1] is 2 for the second time"},
      {with_option("weight_share", "1.5"), "'s weight_share is 1.5: it is a part, from 0 to 1"},
      {with_option("contention", "0"), "'s contention is 0: it is a factor above 0"}};
  for (const auto& [text, complaint] : cases)
    EXPECT_TRUE(test::says(complaint_of(text), "the cost file", complaint)) << complaint_of(text);
}

TEST(LayerCosts, refuses_duplicate_layer_names) {
  LayerCosts costs = even_layers();
  costs.layers[5].name = costs.layers[3].name;
  EXPECT_TRUE(test::says(test::error_text<DataError>([&] { write_layer_costs(costs); }),
                         "the cost file's layers[5].name is 'layer3', and so is layers[3].name: "));
}

TEST(LayerCosts, every_value_reads_back) {
  EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
    LayerCosts costs = any_costs(9);
    if (*rc::gen::arbitrary<bool>()) costs.memory_cap_bytes = *rc::gen::inRange(0, 1 << 30);
    if (*rc::gen::arbitrary<bool>()) costs.micro_batches.clear();
    if (*rc::gen::arbitrary<bool>()) costs.cache_bytes = *rc::gen::inRange(0, 1 << 30);
    if (*rc::gen::arbitrary<bool>()) costs.kernels = "tuned\nlinear 784 1024 streamed\n";
    if (*rc::gen::arbitrary<bool>()) costs.slowdown_under_load = *rc::gen::inRange(1, 300) / 100.0;
    costs.layers[0].forward = 1.0 / *rc::gen::inRange(1, 1000);
    costs.layers[0].name = "a \"quoted\" name";
    RC_ASSERT(read_layer_costs(write_layer_costs(costs)) == costs);
  }));
}

TEST(LayerCosts, refuses_to_write_values_out_of_range) {
  for (const auto& spoil : std::vector<void (*)(LayerCosts&)>{
           [](LayerCosts& costs) { costs.layers.clear(); },
           [](LayerCosts& costs) { costs.layers[0].forward = std::numeric_limits<double>::infinity(); },
           [](LayerCosts& costs) { costs.layers[0].activation_bytes = std::numeric_limits<double>::quiet_NaN(); },
           [](LayerCosts& costs) { costs.layers[0].activation_bytes = 0.5; },
           [](LayerCosts& costs) { costs.layers[0].name = "\xff"; },
           [](LayerCosts& costs) { costs.time_unit = "two\nlines"; }, [](LayerCosts& costs) { costs.ranks = 0; }}) {
    LayerCosts costs = even_layers();
    spoil(costs);
    EXPECT_THROW(write_layer_costs(costs), DataError);
  }
}

TEST(LayerCosts, the_fingerprint_depends_on_the_values) {
  const std::string before = fingerprint(even_layers());
  EXPECT_EQ(before.size(), 16u);
  EXPECT_EQ(fingerprint(read_layer_costs(write_layer_costs(even_layers()))), before);
  LayerCosts other = even_layers();
  other.layers[7].weight_grad += 1e-9;
  EXPECT_NE(fingerprint(other), before);
}

TEST(StageLayers, are_one_line) {
  EXPECT_EQ(write_stage_layers({{"embedding", "block 0"}, {"block 1"}, {"norm"}}), "embedding,block 0;block 1;norm");
}

TEST(StageLayers, read_back) {
  EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
    const auto names = rc::gen::nonEmpty(rc::gen::container<std::string>(rc::gen::element('a', 'b', ' ', '.')));
    const auto layers = rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(names));
    const StageLayers stages = *rc::gen::nonEmpty(rc::gen::container<StageLayers>(layers));
    RC_ASSERT(read_stage_layers(write_stage_layers(stages)) == stages);
  }));
}

TEST(StageLayers, errors_name_the_position) {
  const auto error_text = [](const StageLayers& stages) {
    return test::error_text<DataError>([&] { write_stage_layers(stages); });
  };
  EXPECT_EQ(error_text({}), "there are no stages to name the layers of");
  EXPECT_EQ(error_text({{"a"}, {}}), "stage 1 has no layers to name");
  EXPECT_TRUE(test::says(error_text({{"a", "b;c"}}), "layer 1 of stage 0 is named 'b;c': ", "no ',' or ';'"));
  for (const char* text : {"", "a;", "a,,b", ";a", "a,;b"})
    EXPECT_TRUE(test::says(test::error_text<DataError>([&] { read_stage_layers(text); }), "has no name")) << text;
}
}  // namespace
}  // namespace penstock::layer_costs_test
