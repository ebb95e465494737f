#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/pictures.h"
#include "tests/base/error_text.h"
#include "tests/trace/golden.h"
#include "tests/trace/occurrences.h"

namespace penstock::schedule_svg_test {
namespace {

/// A schedule with two chunks per rank, an overlap pair and a fused W.
constexpr const char* rich = R"(penstock schedule 1
name rich
ranks 1
stages 2
micro_batches 2
rank_of_stage 0 0
rank 0: 0F0 1F0 (0F1;1I0)OVERLAP_F_B 1F1 1I1 1W0-1 0I0 0I1 0W0-1
)";

std::string drawn(const Schedule& schedule, const StageCosts& costs = StageCosts::unit()) {
  return schedule_svg(lower(schedule), costs);
}

TEST(ScheduleSvg, matches_the_golden_file) {
  expect_golden(TESTS_FOLDER "/trace/goldens/schedule.svg",
                drawn(generate("1f1b", {.ranks = 2, .micro_batches = 4}), {.update = {0.5}, .message = 0.25}));
}

TEST(ScheduleSvg, every_instruction_is_a_box_at_its_time) {
  const std::string picture = drawn(generate("1f1b", {.ranks = 2, .micro_batches = 4}));
  EXPECT_EQ(occurrences(picture, "<title>"), 16) << "4 F and 4 B on both ranks; no STEP, which takes no time";
  EXPECT_EQ(occurrences(picture, "<title>1B0: 2 to 4</title>"), 1);
  EXPECT_EQ(occurrences(picture, ">3</text>"), 4);
  EXPECT_EQ(occurrences(picture, "update"), 0);
}

TEST(ScheduleSvg, the_title_contains_the_results) {
  const std::string picture = drawn(generate("1f1b", {.ranks = 2, .micro_batches = 4}), {.forward = {1, 2}});
  EXPECT_EQ(occurrences(picture, ">1f1b: p = 2, v = 1, m = 4</text>"), 1);
  EXPECT_EQ(occurrences(picture,
                        ">makespan 19; bubble 26.32 % of the makespan, 26.32 % of the span; at most 2 live "
                        "activations on a rank, in micro-batches of a whole rank</text>"),
            1);
  EXPECT_EQ(occurrences(picture, ">F = 1 to 2, I = 1, W = 1</text>"), 1);
}

TEST(ScheduleSvg, only_costs_that_differ_from_the_default_are_shown) {
  const std::string picture = drawn(generate("zb-h1", {.ranks = 2, .micro_batches = 4}),
                                    {.message = 0.5, .weight_share = 0.4, .overhead = 0.125});
  EXPECT_EQ(occurrences(picture, ">F = 1, I = 1, W = 1, message = 0.5, overhead = 0.125, weight share = 0.4</text>"),
            1);
}

TEST(ScheduleSvg, an_update_with_a_cost_is_a_thin_box) {
  const std::string picture = drawn(generate("1f1b", {.ranks = 2, .micro_batches = 4}), {.update = {1}});
  EXPECT_EQ(occurrences(picture, "<title>0STEP: 15 to 16</title>"), 1);
  EXPECT_EQ(occurrences(picture, "height=\"26\" fill=\"#888888\""), 0);
  EXPECT_EQ(occurrences(picture, "height=\"13\" fill=\"#888888\""), 2);
  EXPECT_EQ(occurrences(picture, ">update</text>"), 1);
}

TEST(ScheduleSvg, draws_fused_instructions_pairs_and_chunks) {
  const std::string picture = drawn(read_schedule(rich));
  EXPECT_EQ(occurrences(picture, ">0-1</text>"), 2);
  EXPECT_EQ(occurrences(picture, "<title>0W0-1: 10 to 12</title>"), 1);
  EXPECT_EQ(occurrences(picture, "stroke-width=\"2\""), 1) << "one frame, around 0F1 and 1I0";
  EXPECT_EQ(occurrences(picture, "<rect x=\"238.67\" y=\"111\" width=\"126.67\" height=\"26\" fill=\"none\""), 1)
      << "from 2 to 4 of 12";
  EXPECT_EQ(occurrences(picture, ">lighter: a later stage of its rank; framed: may overlap</text>"), 1);
  for (const char* instruction : {"0I1", "1I1"})
    EXPECT_EQ(occurrences(picture, say("<title>", instruction, ": ")), 1) << instruction;
  // Both shades of I are in the boxes and in the legend.
  EXPECT_EQ(occurrences(picture, "fill=\"#f6cd5a\""), 2 + 1);
  EXPECT_EQ(occurrences(picture, "fill=\"#fae4a4\""), 2 + 1);
}

TEST(ScheduleSvg, a_name_cannot_break_the_picture) {
  Schedule schedule = generate("gpipe", {.ranks = 1, .micro_batches = 1});
  schedule.name = "<&\">\n";
  EXPECT_EQ(occurrences(drawn(schedule), ">&lt;&amp;&quot;&gt; : p = 1"), 1);
}

TEST(ScheduleSvg, refuses_too_many_boxes) {
  const Schedule schedule = generate("gpipe", {.ranks = 10, .micro_batches = 1001});
  EXPECT_EQ(test::error_text<ConfigError>([&] { schedule_svg(schedule, StageCosts::unit()); }),
            "a picture of 20020 boxes: at most 20000 can be distinguished in an SVG; draw fewer "
            "micro-batches, or use HTML, which zooms");
}

TEST(ScheduleSvg, refuses_invalid_costs_and_schedules) {
  Schedule schedule = generate("gpipe", {.ranks = 2, .micro_batches = 1});
  EXPECT_THROW(schedule_svg(schedule, {.forward = {1, 2, 3}}), ConfigError);
  std::swap(schedule.orders[1][0], schedule.orders[1][1]);
  EXPECT_THROW(schedule_svg(schedule, StageCosts::unit()), ScheduleError);
}

}  // namespace
}  // namespace penstock::schedule_svg_test
