#include "penstock/base/nearest.h"

#include <gtest/gtest.h>

namespace penstock::nearest_test {
namespace {

TEST(EditDistance, counts_edits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("train", "train"), 0u);
  EXPECT_EQ(edit_distance("tran", "train"), 1u) << "left out";
  EXPECT_EQ(edit_distance("traiin", "train"), 1u) << "put in";
  EXPECT_EQ(edit_distance("trayn", "train"), 1u) << "replaced";
  EXPECT_EQ(edit_distance("trian", "train"), 1u) << "swapped";
  EXPECT_EQ(edit_distance("", "train"), 5u);
  EXPECT_EQ(edit_distance("show", "check"), 4u);
}

TEST(Nearest, returns_the_first_of_the_closest_names) {
  EXPECT_EQ(nearest("batch-sizes", {"seed", "batch-size", "micro-batches"}), "batch-size");
  EXPECT_EQ(nearest("x", {"ab", "cd"}), "ab");
}

}  // namespace
}  // namespace penstock::nearest_test
