#include "penstock/schedule/text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "tests/base/error_text.h"
#include "tests/schedule/random_schedule.h"
#include "tests/support/temporary_folder.h"

namespace penstock::text_test {
namespace {

const std::string example =
    "penstock schedule 1\n"
    "name 1f1b\n"
    "ranks 2\n"
    "stages 2\n"
    "micro_batches 2\n"
    "rank_of_stage 0 1\n"
    "rank 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0STEP\n"
    "rank 1: 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1STEP\n";

TEST(ScheduleText, matches_the_example_in_the_documentation) {
  EXPECT_EQ(write_schedule(lower(generate("1f1b", {.ranks = 2, .micro_batches = 2}))), example);
  EXPECT_EQ(read_schedule(example), lower(generate("1f1b", {.ranks = 2, .micro_batches = 2})));
}

TEST(ScheduleText, reads_back_what_it_writes) {
  EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
    const Schedule schedule = any_instructions();
    const std::string text = write_schedule(schedule);
    RC_ASSERT(read_schedule(text) == schedule);
    RC_ASSERT(write_schedule(read_schedule(text)) == text);
  }));
  EXPECT_TRUE(rc::check("the same for schedules that work", [] {
    const int stages = *rc::gen::inRange(1, 7);
    const Links links = any_links(stages);
    const Schedule schedule = working_schedule(stages, links);
    RC_ASSERT(read_schedule(write_schedule(schedule)) == schedule);
    const Schedule lowered = lower(schedule, links);
    RC_ASSERT(read_schedule(write_schedule(lowered)) == lowered);
  }));
}

TEST(ScheduleText, preserves_names) {
  for (const char* name : {"", " ", "two instructions ", "rank 0:", "\t\xff"}) {
    Schedule schedule = generate("gpipe", {.ranks = 1, .micro_batches = 1});
    schedule.name = name;
    EXPECT_EQ(read_schedule(write_schedule(schedule)).name, name);
  }
}

/// The example with the first `from` replaced by `to`.
std::string with(const std::string& from, const std::string& to) {
  std::string text = example;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

struct Wrong {
  std::string text;
  const char* error;
};

TEST(ScheduleText, errors_name_line_and_column) {
  const Wrong cases[] = {
      {"", "line 1, column 1: the first line must be 'penstock schedule 1'"},
      {with("schedule 1", "schedule 2"),
       "line 1, column 19: the schedule is of version 2, and this Penstock reads version 1"},
      {with("name 1f1b\n", ""), "line 2, column 1: expected the header line 'name'"},
      {with("name 1f1b", "name 1f\r1b"), "line 2, column 8: a carriage return within a line"},
      {with("name 1f1b", "nam 1f1b # x"), "line 2, column 1: expected the header line 'name'"},
      {"# a comment\n\n" + with("schedule 1", "schedule 2"), "line 3, column 19: the schedule is of version 2"},
      {with("stages 2", "stages 2 # two\n#\nstages 2"), "line 6, column 1: expected the header line 'micro_batches'"},
      {with("0F0 ", "0F0\t"), "line 7, column 12: "},
      {with("ranks 2\n", ""), "line 3, column 1: expected the header line 'ranks'"},
      {with("ranks 2\nstages 2\n", "stages 2\nranks 2\n"), "line 3, column 1: expected the header line 'ranks'"},
      {with("ranks 2", "ranks 02"), "line 3, column 7: a number without leading zeros"},
      {with("ranks 2", "ranks +2"), "line 3, column 7: a number is expected"},
      {with("ranks 2", "ranks 0"), "line 3, column 7: ranks must be at least 1"},
      {with("stages 2", "stages 65537"), "line 4, column 8: a number of at most 65536"},
      {with("micro_batches 2", "micro_batches 4294967298"), "line 5, column 15: a number of at most 2147483647"},
      {with("rank_of_stage 0 1", "rank_of_stage 0"), "line 6, column 16: expected a space and the rank of stage 1"},
      {with("rank_of_stage 0 1", "rank_of_stage 0 1 1"), "line 6, column 18: expected the end of the line"},
      {with("rank_of_stage 0 1", "rank_of_stage 0 2"), "line 6, column 17: a number of at most 1"},
      {with("rank 0:", "rank 1:"), "line 7, column 6: expected the line of rank 0"},
      {with("0F0 ", "0X0 "), "line 7, column 10: 'X' is not an instruction"},
      {with("0F0 ", "0F2 "), "line 7, column 9: 0F2 names micro-batch 2, but there are 2 micro-batches"},
      {with("0F0 ", "2F0 "), "line 7, column 9: 2F0 names stage 2, but there are 2 stages"},
      {with("0SEND_F0 ", "0SEND_F0>3 "), "line 7, column 13: 0SEND_F0>3 names stage 3, but there are 2 stages"},
      {with("0F0 ", "0W0-2 "), "line 7, column 9: 0W0-2 names micro-batch 2"},
      {with("0F0 ", "(0F0;0F1)OVERLAP_F_B "), "line 7, column 14: the other half of an overlap must be B or I"},
      {with("0F0 ", "(0B0;0B1)OVERLAP_F_B "), "line 7, column 10: the first half of an overlap must be F"},
      {with("0F0 ", "(0F0;0B1) "), "line 7, column 18: expected 'OVERLAP_F_B'"},
      {with("0F0 ", "(0F0;0B1;0B1)OVERLAP_F_B "), "line 7, column 17: expected ')'"},
      {with("1STEP\n", "1STEP"), "line 8, column 66: the text ends within a line"},
      {example + "rank 2:\n", "line 9, column 1: trailing text after the last of 2 ranks"},
      {with("ranks 2", "ranks 3"), "line 9, column 1: expected the line of rank 2"},
      // The reader must not allocate memory for the numbers of a header.
      {with("ranks 2", "ranks 2147483647"), "line 9, column 1: expected the line of rank 2"},
  };
  for (const Wrong& wrong : cases) {
    const std::string text = test::error_text<DataError>([&] { read_schedule(wrong.text); });
    EXPECT_TRUE(text.starts_with(wrong.error)) << text << "\nexpected: " << wrong.error;
  }
}

TEST(ScheduleText, accepts_comments_spaces_and_carriage_returns) {
  std::string text =
      "# a comment\r\n\r\n" + with("ranks 2\n", "ranks   2   # two of them\n  # and one\n\n") + "\n# end";
  text.replace(text.find("0F0 "), 4, "  0F0   ");
  text.replace(text.find("0STEP\n"), 6, "0STEP # done\n");
  EXPECT_EQ(read_schedule(text), read_schedule(example));
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 2)) text.insert(at, "\r");
  EXPECT_EQ(read_schedule(text), read_schedule(example));
  EXPECT_EQ(read_schedule(with("name 1f1b", "name a # b")).name, "a # b") << "a name is free text";
}

TEST(ScheduleText, a_huge_number_of_micro_batches_allocates_nothing) {
  EXPECT_EQ(read_schedule(with("micro_batches 2", "micro_batches 2147483647")).micro_batches, 2147483647);
}

TEST(ScheduleText, refuses_to_write_unreadable_schedules) {
  const auto refused = [](auto&& change) {
    Schedule schedule = generate("1f1b", {.ranks = 2, .micro_batches = 2});
    change(schedule);
    EXPECT_THROW(write_schedule(schedule), ScheduleError);
  };
  refused([](Schedule& s) { s.name = "two\nlines"; });
  refused([](Schedule& s) { s.micro_batches = 0; });
  refused([](Schedule& s) { s.micro_batches = 1; });
  refused([](Schedule& s) { s = {}; });
  refused([](Schedule& s) { s.rank_of_stage[1] = Rank(2); });
  refused([](Schedule& s) { s.rank_of_stage.clear(); });
  refused([](Schedule& s) { s.orders[0][0] = parse_instruction("2F0"); });
  refused([](Schedule& s) { s.orders[0][0] = Instruction::compute(Op::forward, StageId(0), MicroBatch(-1)); });
  refused(
      [](Schedule& s) { s.orders[0][0] = Instruction::fused_weight_grad(StageId(0), MicroBatch(1), MicroBatch(0)); });
  refused([](Schedule& s) {
    s.orders[0][0] = Instruction::message(Op::send_forward, StageId(1), StageId(0), MicroBatch(0));
  });
  refused([](Schedule& s) { s.orders[0].back() = s.orders[0].back().overlapping_next(); });
  refused([](Schedule& s) { s.orders[0][0] = s.orders[0][0].overlapping_next(); });  // 0F1 follows
  refused([](Schedule& s) { s.orders[0] = {s.orders[0][0].overlapping_next()}; });
}

class LoadSchedule : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_.string();
  }
  const test::TemporaryFolder folder_{"load_schedule"};
  const std::filesystem::path path_ = folder_ / "mine.sched";
};

TEST_F(LoadSchedule, detects_the_format) {
  EXPECT_EQ(load_schedule(write(example)), read_schedule(example));
  EXPECT_EQ(load_schedule(write("# mine\n" + example)), read_schedule(example));
  std::vector<std::string> notes;
  const Schedule csv = load_schedule(write("0F0,0F1,0B1,0B0\r\n"), &notes);
  EXPECT_EQ(csv.name, path_.stem().string());
  EXPECT_EQ(notes.size(), 1u);
}

TEST_F(LoadSchedule, a_name_of_a_generator_is_not_a_file) {
  EXPECT_FALSE(is_schedule_file("1f1b"));
  EXPECT_FALSE(is_schedule_file("1f2b"));  // neither: the message about unknown schedules lists the names
  EXPECT_TRUE(is_schedule_file("my.sched"));
  EXPECT_TRUE(is_schedule_file("plans/mine"));
  write(example);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(path_.parent_path());
  const std::filesystem::path without_dot = path_.stem();
  std::filesystem::copy_file(path_, without_dot);
  EXPECT_TRUE(is_schedule_file(without_dot.string()));
  std::filesystem::remove(without_dot);
  std::filesystem::current_path(before);
}

TEST_F(LoadSchedule, errors_name_the_file) {
  const auto error_of = [](const std::string& path) {
    return test::error_text<DataError>([&] { load_schedule(path); });
  };
  EXPECT_EQ(error_of("/nowhere.sched"), "/nowhere.sched: cannot be opened; a schedule file is expected there");
  EXPECT_TRUE(error_of("/").starts_with("/: cannot be opened"));
  EXPECT_EQ(error_of(write(example + "x")),
            path_.string() + ": line 9, column 1: trailing text after the last of 2 ranks");
  EXPECT_EQ(error_of(write("0F0,0Z0\n")).substr(0, path_.string().size() + 15), path_.string() + ": row 1, cell 2");
}

}  // namespace
}  // namespace penstock::text_test
