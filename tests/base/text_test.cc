#include "penstock/base/text.h"

#include <gtest/gtest.h>

namespace penstock::text_test {
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

TEST(Utf8, prefix_ends_at_the_first_invalid_byte) {
  EXPECT_EQ(utf8_prefix(""), 0U);
  EXPECT_EQ(utf8_prefix("plain \x7f\n"), 8U);
  EXPECT_EQ(utf8_prefix("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"), 9U) << "two, three and four bytes";
  for (const char* bad : {"\x80", "\xff", "\xc3", "\xc3(", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\xaf", "\xe2\x82",
                          "\xed\xa0\x80", "\xf0\x80\x80\xaf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80"})
    EXPECT_EQ(utf8_prefix(std::string("ab") + bad), 2U) << printable(bad);
}

TEST(Utf8, plain_text_has_no_control_characters) {
  EXPECT_TRUE(
      is_plain_text("layer 1, gr\xc3\xb6\xc3\x9f"
                    "e"));
  for (const char* text : {"a\nb", "a\tb", "\x7f", "\x1b[31m", "\xff"})
    EXPECT_FALSE(is_plain_text(text)) << printable(text);
  EXPECT_FALSE(is_plain_text(std::string_view("a\0b", 3)));
}

TEST(Utf8, control_characters_are_escaped) {
  EXPECT_EQ(printable("a\nb\xff\xc3\xa9\x1b"), "a\\x0ab\\xff\xc3\xa9\\x1b");
}

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
}  // namespace penstock::text_test
