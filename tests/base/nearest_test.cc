#include "penstock/base/text.h"

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

TEST(Nearest, ignores_case_dashes_and_what_precedes_or_follows_the_name) {
  const std::vector<std::string> flags = {"image-size", "micro-batch-size", "batch-size", "chunks",
                                          "epochs",     "micro-batches",    "stages"};
  EXPECT_EQ(nearest("NUM_MICRO_BATCHES", flags), "micro-batches");
  EXPECT_EQ(nearest("NUM_CHUNKS", flags), "chunks");
  EXPECT_EQ(nearest("BATCH_SIZE", flags), "batch-size");
  EXPECT_EQ(nearest("NUM_EPOCHS", flags), "epochs");
  const std::vector<std::string> schedules = {"1f1b", "interleaved", "looped-bfs", "zb-h1", "zb-h2",
                                              "zb-v", "v-half",      "dualpipe-v", "gpipe"};
  EXPECT_EQ(nearest("zbv", schedules), "zb-v");
  EXPECT_EQ(nearest("ZBVZeroBubble", schedules), "zb-v");
  EXPECT_EQ(nearest("ScheduleInterleaved1F1B", schedules), "interleaved") << "the edit distance of 1f1b is greater";
  EXPECT_EQ(nearest("LoopedBFS", schedules), "looped-bfs");
  EXPECT_EQ(nearest("DualPipeV", schedules), "dualpipe-v");
  EXPECT_EQ(nearest("a_b", {"ab", "a-b", "a_b"}), "a_b") << "the name itself";
}

}  // namespace
}  // namespace penstock::nearest_test
