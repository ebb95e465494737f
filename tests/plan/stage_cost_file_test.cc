#include "penstock/plan/stage_cost_text.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::stage_costs_test {
namespace {

std::string complaint_about(const std::string& text) {
  return test::error_text<DataError>([&] { read_stage_costs(text); });
}

/// A file with one cost of each required kind and then `more`.
std::string with(const std::string& more) {
  return R"({"penstock_costs": 1, "forward": [1], "input_grad": [1], "weight_grad": [1])" + more + "}";
}

using Costs = std::vector<double>;

TEST(StageCostFile, reads_all_members) {
  const StageCosts costs = read_stage_costs(
      R"({"penstock_costs": 1, "forward": [1, 2], "input_grad": [3], "weight_grad": [4.5, 0], "update": [5, 6],
          "message": 0.25, "weight_share": 0.4, "weight_grad_fused": [0.5], "backward": [1.5, 2],
          "activation_bytes": [1048576, 0]})");
  EXPECT_EQ(costs.forward, (Costs{1, 2}));
  EXPECT_EQ(costs.input_grad, (Costs{3}));
  EXPECT_EQ(costs.weight_grad, (Costs{4.5, 0}));
  EXPECT_EQ(costs.update, (Costs{5, 6}));
  EXPECT_EQ(costs.message, 0.25);
  EXPECT_EQ(costs.weight_share, 0.4);
  EXPECT_EQ(costs.weight_grad_fused, Costs{0.5});
  EXPECT_EQ(costs.backward, (Costs{1.5, 2}));
  EXPECT_EQ(costs.activation_bytes, (Costs{1048576, 0}));
}

TEST(StageCostFile, most_members_may_be_left_out) {
  const StageCosts costs = read_stage_costs(with(""));
  EXPECT_EQ(costs.update, Costs{0});
  EXPECT_EQ(costs.message, 0);
  EXPECT_EQ(costs.weight_share, 0.5);
  EXPECT_TRUE(costs.weight_grad_fused.empty() && costs.backward.empty() && costs.activation_bytes.empty());
}

TEST(StageCostFile, errors_name_the_member) {
  const std::string begin = R"({"penstock_costs": 1, )";
  const std::vector<std::pair<std::string, std::string>> cases{
      {"{", " is not JSON: "},
      {begin + R"("forward": [1e999]})", " is not JSON: "},
      {"[1]", " is not a JSON object"},
      {"{}", R"("penstock_costs": 1 in its one object: docs/schedule_format.md describes the format)"},
      {R"({"penstock_layer_costs": 1})", " has costs of layers, which `penstock plan --costs` takes"},
      {R"({"penstock_costs": 2})", "'s penstock_costs is 2: 1 to 1 is possible"},
      {begin + R"("foward": [1]})",
       " has a member 'foward', which is not known (did you mean 'forward'?); there are penstock_costs, forward, "},
      {begin + R"("forward": [1], "forward": [2]})", " has the member 'forward' twice in one object"},
      {begin + R"("forward": [1], "input_grad": []})", " has no costs for input_grad: pass a list of one number"},
      {begin + R"("forward": [1], "weight_grad": [1]})", " has no costs for input_grad: pass a list of one number"},
      {with(R"(, "backward": [])"), " has no costs for backward: "},
      {begin + R"("forward": 1})", "'s forward is not a list"},
      {begin + R"("forward": [1, -1]})", "'s forward[1] is -1: a finite number >= 0 is needed"},
      {begin + R"("forward": [1, "1"]})", "'s forward[1] is not a number"},
      {begin + R"("forward": [1, null]})", "'s forward[1] is not a number"},
      {begin + R"("forward": [1, [1]]})", "'s forward[1] is not a number"},
      {with(R"(, "message": -2)"), "'s message is -2: a finite number >= 0 is needed"},
      {with(R"(, "weight_share": 2)"), "'s weight_share is 2: it is a part, from 0 to 1"}};
  for (const auto& [text, complaint] : cases)
    EXPECT_TRUE(test::says(complaint_about(text), "the cost file", complaint)) << complaint_about(text);
}

TEST(CostList, accepts_one_or_several_costs) {
  EXPECT_EQ(parse_cost_list("--cost-f", "1.5"), (std::vector<double>{1.5}));
  EXPECT_EQ(parse_cost_list("--cost-f", "1,2,0,1e-3"), (std::vector<double>{1, 2, 0, 0.001}));
}

std::string error_text(std::string_view text) {
  return test::error_text<ConfigError>([&] { parse_cost_list("--cost-w", text); });
}

TEST(CostList, errors_name_the_position) {
  EXPECT_EQ(error_text("1,x,3"),
            "--cost-w 1,x,3: cost 2 is 'x', which is not a finite number >= 0; write costs as 1.5 or 1,2,1.5");
  EXPECT_TRUE(error_text("").starts_with("--cost-w : cost 1 is ''"));
}

TEST(CostList, takes_blanks_around_costs_and_refuses_empty_items) {
  EXPECT_EQ(parse_cost_list("--cost-w", " 1, 2 "), (std::vector<double>{1, 2}));
  for (const char* text :
       {"", ",", "1,", ",1", "1,,2", "-1", "nan", "inf", "1e999", "0x10", " ", "1;2", "1.5ms", "+1", "1,5 2"})
    EXPECT_NE(error_text(text), "[no error]") << "'" << text << "'";
}
}  // namespace
}  // namespace penstock::stage_costs_test
