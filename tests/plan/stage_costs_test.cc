#include "penstock/plan/stage_costs.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"

namespace penstock {
namespace {

std::string complaint_about(const char* text) {
  try {
    read_stage_costs(text);
  } catch (const DataError& error) {
    return error.what();
  }
  return "none";
}

TEST(StageCosts, all_there_is) {
  const Costs costs = read_stage_costs(R"({"penstock_costs": 1, "forward": [1, 2], "input_grad": [3], "weight_grad":
                                           [4.5, 0], "update": [5, 6], "message": 0.25})");
  EXPECT_EQ(costs.forward, (std::vector<double>{1, 2}));
  EXPECT_EQ(costs.input_grad, (std::vector<double>{3}));
  EXPECT_EQ(costs.weight_grad, (std::vector<double>{4.5, 0}));
  EXPECT_EQ(costs.update, (std::vector<double>{5, 6}));
  EXPECT_EQ(costs.message, 0.25);
}

TEST(StageCosts, update_and_message_may_be_left_out) {
  const Costs costs = read_stage_costs(R"({"penstock_costs": 1, "forward": [1], "input_grad": [1], "weight_grad": [1]})");
  EXPECT_EQ(costs.update, (std::vector<double>{0}));
  EXPECT_EQ(costs.message, 0);
}

TEST(StageCosts, says_what_is_wrong) {
  EXPECT_EQ(complaint_about("{"), "this is no file of costs: a JSON object with penstock_costs = 1 is expected");
  EXPECT_EQ(complaint_about("[1]"), complaint_about("{}"));
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 2})"), "penstock_costs is 2, and this version reads 1");
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 1, "foward": [1]})"),
            "the costs have 'foward', which is none of forward, input_grad, weight_grad, update, message and weight_share");
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 1, "forward": [1], "weight_grad": [1]})"),
            "the costs have no input_grad: give a list of one number for all stages or one for each");
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 1, "forward": 1})"),
            "the costs' forward is no list: give one number for all stages or one for each, as [1, 2]");
  for (const char* bad : {"-1", "\"1\"", "null", "1e999", "[1]"})
    EXPECT_NE(complaint_about(("{\"penstock_costs\": 1, \"forward\": [1, " + std::string(bad) + "]}").c_str()), "none")
        << bad;
  EXPECT_EQ(complaint_about(R"({"penstock_costs": 1, "forward": [1], "input_grad": [1], "weight_grad": [1],
                                "message": -2})"),
            "the costs' message has -2, which is no finite number >= 0");
}

}  // namespace
}  // namespace penstock
