#include "penstock/plan/stage_cost_text.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"

namespace penstock::cost_list_test {
namespace {

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
}  // namespace penstock::cost_list_test
