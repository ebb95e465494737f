#include "penstock/schedule/timeline_grid.h"

#include <gtest/gtest.h>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/text.h"

namespace penstock::timeline_grid_test {
namespace {

TEST(TimelineGrid, leaves_messages_out_and_draws_the_step) {
  EXPECT_EQ(timeline_grid(lower(generate("gpipe", {.ranks = 2, .micro_batches = 1}))),
            "rank 0 |  0F0    .     .    0B0  0STEP\n"
            "rank 1 |   .    1F0   1B0  1STEP   .\n");
}

TEST(TimelineGrid, aligns_ranks_and_instructions_of_any_width) {
  const std::string text = timeline_grid(generate("forward-only", {.ranks = 11, .micro_batches = 1}));
  EXPECT_EQ(text.substr(0, text.find('\n')), "rank  0 | 0F0   .    .    .    .    .    .    .    .    .    .");
  EXPECT_EQ(text.substr(text.rfind("rank")), "rank 10 |  .    .    .    .    .    .    .    .    .    .   10F0\n");
}

TEST(TimelineGrid, marks_an_instruction_a_message_and_a_missing_instruction) {
  const Schedule schedule = lower(generate("gpipe", {.ranks = 2, .micro_batches = 1}), LowerOptions{.step = false});
  EXPECT_EQ(timeline_grid(schedule, {.marked = GridCell{Rank(1), 1}}),
            "rank 0 |  0F0    .     .    0B0\n"
            "rank 1 |   .   >1F0<  1B0    .\n");
  EXPECT_EQ(timeline_grid(schedule, {.marked = GridCell{Rank(1), 3}}),
            "rank 0 |    0F0         .          .          .         0B0\n"
            "rank 1 |     .         1F0        1B0     >1SEND_B0<     .\n");
  EXPECT_EQ(timeline_grid(schedule, {.marked = GridCell{Rank(0), 4}}),
            "rank 0 |    0F0        .         .        0B0    >missing<\n"
            "rank 1 |     .        1F0       1B0        .         .\n");
}

TEST(TimelineGrid, shortens_long_rows_around_the_mark) {
  const Schedule schedule = generate("gpipe", {.ranks = 1, .micro_batches = 8});
  EXPECT_EQ(timeline_grid(schedule, {.marked = {}, .max_columns = 3}), "rank 0 | 0F0 0F1 0F2 ...\n");
  EXPECT_EQ(timeline_grid(schedule, {.marked = GridCell{Rank(0), 9}, .max_columns = 3}),
            "rank 0 | ...  0B0  >0B1<  0B2  ...\n");
  EXPECT_EQ(timeline_grid(schedule, {.marked = GridCell{Rank(0), 15}, .max_columns = 3}), "rank 0 | ...  0B6  >0B7<\n");
  EXPECT_EQ(timeline_grid(schedule, {.marked = GridCell{Rank(5), 9}, .max_columns = 3}), "rank 0 | 0F0 0F1 0F2 ...\n");
}

TEST(TimelineGrid, joins_the_halves_of_an_overlap) {
  EXPECT_EQ(
      timeline_grid(read_schedule("penstock schedule 1\nname\nranks 1\nstages 1\nmicro_batches 2\nrank_of_stage 0\n"
                                  "rank 0: 0F0 (0F1;0B0)OVERLAP_F_B 0B1\n")),
      "rank 0 | 0F0  0F1+ 0B0  0B1\n");
}

TEST(TimelineGrid, draws_a_deadlock_and_the_remaining_instructions) {
  EXPECT_EQ(
      timeline_grid(read_schedule("penstock schedule 1\nname\nranks 2\nstages 2\nmicro_batches 2\nrank_of_stage 0 1\n"
                                  "rank 0: 0F0 0B0 0F1 0B1\nrank 1: 1F0 1F1 1B0 1B1\n")),
      "rank 0 | 0F0  .   |  0B0 0F1 0B1\n"
      "rank 1 |  .  1F0  |  1F1 1B0 1B1\n");
}

TEST(TimelineGrid, draws_invalid_schedules_in_order) {
  Schedule schedule = generate("gpipe", {.ranks = 2, .micro_batches = 2});
  schedule.micro_batches = 2000000000;
  schedule.orders[0][0] = parse_instruction("1F0");
  EXPECT_EQ(timeline_grid(schedule), "rank 0 | 1F0 0F1 0B0 0B1\nrank 1 | 1F0 1F1 1B0 1B1\n");
  EXPECT_EQ(timeline_grid({}), "");
}

}  // namespace
}  // namespace penstock::timeline_grid_test
