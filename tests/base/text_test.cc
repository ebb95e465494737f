#include "penstock/base/text.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/support/temporary_folder.h"

namespace penstock::text_test {
namespace {

TEST(TextTable, columns_are_as_wide_as_their_widest_cell) {
  EXPECT_EQ(aligned({{"rank", "ms"}, {"0", "1.25"}, {"10", "100.50"}}),
            "rank      ms\n"
            "   0    1.25\n"
            "  10  100.50\n");
  EXPECT_EQ(aligned({}), "");
}

TEST(TextTable, numbers_have_fixed_decimals) {
  EXPECT_EQ(fixed(1.005, 1), "1.0");
  EXPECT_EQ(fixed(1e30, 0), "1000000000000000019884624838656");
}

TEST(InRanges, joins_names_that_count_up) {
  EXPECT_EQ(in_ranges({"a", "b.8", "b.9", "b.10", "c"}), "a, b.8-10, c");
  EXPECT_EQ(in_ranges({"0", "1", "2", "4", "4", "x5", "x06", "x7"}), "0-2, 4, 4, x5, x06, x7");
  EXPECT_EQ(in_ranges({"a1", "b2", "b", "99999999999"}), "a1, b2, b, 99999999999");
  EXPECT_EQ(in_ranges({}), "");
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

class ReadText : public testing::Test {
 protected:
  std::string write(const std::string& bytes) const {
    test::write_bytes(folder_ / "a", bytes);
    return folder_ / "a";
  }
  static std::string refusal(const std::string& path, const TextLimits& limits = {}) {
    return test::error_text<DataError>([&] { read_text(path, limits); });
  }

  const test::TemporaryFolder folder_{"read_text"};
};

TEST_F(ReadText, reads_every_byte) {
  for (const std::string& text : {std::string(), std::string("a\0b\r\n", 5), std::string(200'000, 'x')})
    EXPECT_EQ(read_text(write(text)), text);
  EXPECT_EQ(read_text(write("12345"), {.most_bytes = 5}), "12345");
}

TEST_F(ReadText, refuses_what_is_too_large_before_it_is_read) {
  const std::string path = write("123456");
  EXPECT_EQ(refusal(path, {.most_bytes = 5}), path + ": has 6 bytes: more than the 5 that are accepted");
  std::filesystem::resize_file(path, std::uintmax_t{1} << 40);  // sparse: costs no disk
  EXPECT_EQ(refusal(path), path + ": has 1099511627776 bytes: more than the 67108864 that are accepted");
  EXPECT_EQ(refusal("/dev/zero", {.most_bytes = 100'000}),
            "/dev/zero: has more than the 100000 bytes that are accepted");
}

TEST_F(ReadText, reads_a_pipe) {
  const std::string path = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "through a pipe"; });
  EXPECT_EQ(read_text(path), "through a pipe");
  writer.join();
}

TEST_F(ReadText, names_what_cannot_be_read) {
  const std::string folder = folder_.string(), absent = folder + "/absent";
  EXPECT_EQ(refusal(absent), absent + ": cannot be opened: No such file or directory");
  EXPECT_EQ(refusal(folder), folder + ": is a folder, and a file is expected there");
  for (const std::string& path : {absent, folder})
    EXPECT_EQ(refusal(path, {.expected = "a schedule file"}),
              path + ": cannot be opened; a schedule file is expected there");
}

TEST_F(ReadText, the_name_precedes_errors_of_the_format) {
  const std::string path = write("text");
  EXPECT_EQ(read_file(path, [](const std::string& text) { return text.size(); }), 4u);
  const auto refuse = [](const std::string&) -> int { throw DataError("no number"); };
  EXPECT_EQ(test::error_text<DataError>([&] { read_file(path, refuse); }), path + ": no number");
}

}  // namespace
}  // namespace penstock::text_test
