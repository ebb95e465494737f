#include "penstock/schedule/stage_costs.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::costs_test {
namespace {

std::string refusal(const StageCosts& costs) {
  return test::error_text<ConfigError>([&] { require_costs_fit(costs, 3); });
}

TEST(StageCosts, have_one_value_or_one_per_stage) {
  EXPECT_EQ(refusal(StageCosts::unit()), "[no error]");
  EXPECT_EQ(refusal({.forward = {1, 2, 3},
                     .input_grad = {0, 0, 0},
                     .weight_grad = {4},
                     .update = {1, 2, 3},
                     .message = 0.5,
                     .message_gap = 0.5,
                     .weight_share = 1,
                     .overhead = 0.1}),
            "[no error]");
  EXPECT_EQ(refusal({.forward = {1, 2}}), "there are 2 costs for F and 3 stages: pass one for all or one for each");
  EXPECT_EQ(refusal({.input_grad = {1, 2, 3, 4}}),
            "there are 4 costs for I and 3 stages: pass one for all or one for each");
  EXPECT_EQ(refusal({.weight_grad = {}}), "there are 0 costs for W and 3 stages: pass one for all or one for each");
  EXPECT_EQ(refusal({.update = {1, 2}}), "there are 2 costs for update and 3 stages: pass one for all or one for each");
}

TEST(StageCosts, fused_w_and_b_may_be_empty) {
  EXPECT_EQ(refusal({.weight_grad_fused = {1}, .backward = {1, 2, 3}}), "[no error]");
  EXPECT_EQ(refusal({.weight_grad_fused = {1, 2}}),
            "there are 2 costs for a fused W and 3 stages: pass one for all or one for each");
  EXPECT_EQ(refusal({.backward = {-1}}), "a cost for B is -1: costs go from 0 to 1e+15");
}

TEST(StageCosts, are_finite_and_not_negative) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(refusal({.forward = {1, -1, 1}}), "a cost for F is -1: costs go from 0 to 1e+15");
  EXPECT_EQ(refusal({.update = {infinite}}), "a cost for update is inf: costs go from 0 to 1e+15");
  EXPECT_EQ(refusal({.message = 1, .message_gap = 1.5}),
            "a message occupies its link for 1.5 of the 1 that it takes: pass a part of its cost, from 0 to all of it");
  EXPECT_EQ(refusal({.message = -infinite}), "a cost for a message is -inf: costs go from 0 to 1e+15");
  EXPECT_EQ(refusal({.overhead = -0.5}), "a cost for an instruction's overhead is -0.5: costs go from 0 to 1e+15");
  EXPECT_NE(refusal({.weight_grad = {std::numeric_limits<double>::quiet_NaN()}}), "[no error]");
}

TEST(StageCosts, weight_share_is_between_0_and_1) {
  EXPECT_EQ(refusal({.weight_share = 0}), "[no error]");
  EXPECT_EQ(refusal({.weight_share = 1.5}),
            "the weight share is 1.5: it is a part of a micro-batch's activations, from 0 to 1");
  EXPECT_NE(refusal({.weight_share = std::numeric_limits<double>::quiet_NaN()}), "[no error]");
}

}  // namespace
}  // namespace penstock::costs_test
