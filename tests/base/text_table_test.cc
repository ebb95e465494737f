#include "penstock/base/text.h"

#include <gtest/gtest.h>

namespace penstock::text_table_test {
namespace {

TEST(TextTable, columns_are_as_wide_as_their_widest_cell) {
  EXPECT_EQ(aligned({{"rank", "ms"}, {"0", "1.25"}, {"10", "100.50"}}),
            "rank      ms\n"
            "   0    1.25\n"
            "  10  100.50\n");
}

TEST(TextTable, no_rows_give_no_text) { EXPECT_EQ(aligned({}), ""); }

TEST(TextTable, numbers_have_fixed_decimals) {
  EXPECT_EQ(fixed(1.005, 1), "1.0");
  EXPECT_EQ(fixed(1e30, 0), "1000000000000000019884624838656");
}

}  // namespace
}  // namespace penstock::text_table_test
