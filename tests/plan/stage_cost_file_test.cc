#include "penstock/plan/stage_cost_text.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::stage_costs_test {
namespace {

std::string complaint_about(const std::string& text) {
  return test::error_text<DataError>([&] { read_stage_costs(text); });
}

TEST(StageCostFile, reads_all_members) {
  const StageCosts costs =
      read_stage_costs(R"({"penstock_costs": 1, "forward": [1, 2], "input_grad": [3], "weight_grad":
                                           [4.5, 0], "update": [5, 6], "message": 0.25, "weight_share": 0.4})");
  EXPECT_EQ(costs.forward, (std::vector<double>{1, 2}));
  EXPECT_EQ(costs.input_grad, (std::vector<double>{3}));
  EXPECT_EQ(costs.weight_grad, (std::vector<double>{4.5, 0}));
  EXPECT_EQ(costs.update, (std::vector<double>{5, 6}));
  EXPECT_EQ(costs.message, 0.25);
  EXPECT_EQ(costs.weight_share, 0.4);
}

TEST(StageCostFile, reads_costs_of_fused_w_and_b) {
  const std::string three = R"({"penstock_costs": 1, "forward": [1], "input_grad": [1], "weight_grad": [1])";
  EXPECT_EQ(read_stage_costs(three + "}").weight_grad_fused, std::vector<double>{});
  EXPECT_EQ(read_stage_costs(three + "}").backward, std::vector<double>{});
  const StageCosts costs = read_stage_costs(three + R"(, "weight_grad_fused": [0.5], "backward": [1.5, 2]})");
  EXPECT_EQ(costs.weight_grad_fused, std::vector<double>{0.5});
  EXPECT_EQ(costs.backward, (std::vector<double>{1.5, 2}));
  EXPECT_TRUE(test::says(complaint_about(three + R"(, "backward": []})"), "the cost file has no costs for backward: "));
}

TEST(StageCostFile, reads_bytes_of_activations) {
  const std::string three = R"({"penstock_costs": 1, "forward": [1], "input_grad": [1], "weight_grad": [1])";
  EXPECT_TRUE(read_stage_costs(three + "}").activation_bytes.empty()) << "unknown";
  EXPECT_EQ(read_stage_costs(three + R"(, "activation_bytes": [1048576, 0]})").activation_bytes,
            (std::vector<double>{1048576, 0}));
}

TEST(StageCostFile, update_message_and_weight_share_may_be_left_out) {
  const StageCosts costs =
      read_stage_costs(R"({"penstock_costs": 1, "forward": [1], "input_grad": [1], "weight_grad": [1]})");
  EXPECT_EQ(costs.update, (std::vector<double>{0}));
  EXPECT_EQ(costs.message, 0);
  EXPECT_EQ(costs.weight_share, 0.5);
}

TEST(StageCostFile, errors_name_the_member) {
  EXPECT_TRUE(test::says(complaint_about("{"), "the cost file is not JSON: "));
  EXPECT_EQ(complaint_about("[1]"), "the cost file is not a JSON object");
  EXPECT_EQ(complaint_about("{}"),
            "the cost file must say \"penstock_costs\": 1 in its one object: "
            "docs/schedule_format.md describes the format of costs per stage");
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 2})"), "the cost file's penstock_costs is 2: 1 to 1 is possible");
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 1, "foward": [1]})"),
            "the cost file has a member 'foward', which is not known; there are penstock_costs, forward, input_grad, "
            "weight_grad, update, message, weight_share, weight_grad_fused, backward, activation_bytes");
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 1, "forward": [1], "forward": [2]})"),
            "the cost file has the member 'forward' twice in one object");
  for (const char* no_costs : {R"("forward": [1], "input_grad": [])", R"("forward": [1], "weight_grad": [1])"})
    EXPECT_EQ(complaint_about(R"({"penstock_costs": 1, )" + std::string(no_costs) + "}"),
              "the cost file has no costs for input_grad: pass a list of one number for all stages or one for each, as "
              "[1, 2]");
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 1, "forward": 1})"), "the cost file's forward is not a list");
}

TEST(StageCostFile, refuses_values_out_of_range) {
  const auto complaint_about_cost = [](const std::string& cost) {
    return complaint_about(R"({"penstock_costs": 1, "forward": [1, )" + cost + "]}");
  };
  EXPECT_EQ(complaint_about_cost("-1"), "the cost file's forward[1] is -1: a finite number >= 0 is needed");
  for (const char* none : {R"("1")", "null", "[1]"})
    EXPECT_EQ(complaint_about_cost(none), "the cost file's forward[1] is not a number");
  EXPECT_TRUE(test::says(complaint_about_cost("1e999"), "the cost file is not JSON: "));
  const std::string whole = R"({"penstock_costs": 1, "forward": [1], "input_grad": [1], "weight_grad": [1], )";
  EXPECT_EQ(complaint_about(whole + R"("message": -2})"),
            "the cost file's message is -2: a finite number >= 0 is needed");
  EXPECT_EQ(complaint_about(whole + R"("weight_share": 2})"),
            "the cost file's weight_share is 2: it is a part, from 0 to 1");
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

TEST(CostList, refuses_blanks_and_empty_items) {
  for (const char* text :
       {"", ",", "1,", ",1", "1,,2", "-1", "nan", "inf", "1e999", "0x10", " 1", "1 ", "1;2", "1.5ms", "+1", "1,5 2"})
    EXPECT_NE(error_text(text), "[no error]") << "'" << text << "'";
}
}  // namespace
}  // namespace penstock::stage_costs_test
