#include "penstock/trace/pictures.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/trace/timeline.h"
#include "tests/trace/golden.h"
#include "tests/trace/made_trace.h"
#include "tests/trace/occurrences.h"

namespace penstock::svg_test {
namespace {

TEST(StepSvg, matches_the_golden_file) {
  expect_golden(TESTS_FOLDER "/trace/goldens/step.svg",
                step_svg(made_trace({.shape = {.ranks = 2, .micro_batches = 4},
                                     .costs = {{1.1}, {1.2}, {0.9}, {0.3}, 0.05},
                                     .steps = 3,
                                     .slowdown = 0.1})));
}

TEST(StepSvg, every_instruction_is_drawn_twice_with_its_micro_batch) {
  const std::string picture = step_svg(made_trace({.costs = {.update = {2}}}));
  for (const char* instruction : {"0F0", "0B3", "1F2", "1B0", "0STEP", "1STEP"})
    EXPECT_EQ(occurrences(picture, say("<title>", instruction, ": ")), 2) << instruction;
  EXPECT_EQ(occurrences(picture, ">3</text>"), 8) << "F3 and B3 of both ranks, predicted and measured";
  EXPECT_EQ(occurrences(picture, "<title>"), 36);
}

TEST(StepSvg, titles_name_both_times) {
  const std::string picture = step_svg(made_trace({}));
  EXPECT_EQ(occurrences(picture, ">predicted with the times measured below: 15 ms, idle 20 %</text>"), 1);
  EXPECT_EQ(occurrences(picture, ">measured 15 ms, idle 20 %</text>"), 1);
  EXPECT_EQ(occurrences(picture, ">2 pipeline ranks, 2 stages, 4 micro-batches; step 1, the median of those traced<"),
            1);
}

TEST(StepSvg, labels_that_do_not_fit_are_left_out) {
  const std::string picture = step_svg(made_trace({.shape = {.ranks = 2, .micro_batches = 300}}));
  EXPECT_EQ(occurrences(picture, ">299</text>"), 0);
  EXPECT_EQ(occurrences(picture, "<title>0F299: "), 2);
}

TEST(StepSvg, messages_that_take_time_are_drawn) {
  Trace trace = made_trace({});
  EXPECT_EQ(occurrences(step_svg(trace), ">messages</text>"), 0);
  for (RankStep& step : trace.ranks[0])
    for (std::size_t i = 0; i + 1 < step.spans.size(); ++i)
      if (to_string(step.spans[i].instruction) == "0SEND_F1") {
        step.spans[i].end_ns += 500'000;
        step.spans[i + 1].begin_ns += 500'000;
      }
  EXPECT_EQ(occurrences(step_svg(trace), ">messages</text>"), 1);
}

TEST(StepSvg, a_row_per_world_rank_and_per_predicted_rank) {
  const std::string picture = step_svg(made_trace({.shape = {.ranks = 2, .micro_batches = 1}, .replicas = 2}));
  EXPECT_EQ(occurrences(picture, ">rank 1</text>"), 2);
  EXPECT_EQ(occurrences(picture, ">rank 3</text>"), 1);
  EXPECT_EQ(occurrences(picture, ">stage 1, replica 1</text>"), 1);
}

TEST(StepSvg, a_name_cannot_break_the_picture) {
  Trace trace = made_trace({});
  trace.schedule.name = "<&\">\n";
  EXPECT_EQ(occurrences(step_svg(trace), ">&lt;&amp;&quot;&gt; : one training step"), 1);
}

TEST(StepSvg, an_empty_trace_is_refused) { EXPECT_THROW(step_svg(Trace{}), DataError); }

TEST(SvgCanvas, numbers_have_no_trailing_zeros) {
  EXPECT_EQ(shortened(2), "2");
  EXPECT_EQ(shortened(2.5), "2.5");
  EXPECT_EQ(shortened(1.0 / 3), "0.33");
  EXPECT_EQ(shortened(100, 0), "100");
  EXPECT_EQ(shortened(-0.001), "0");
}

TEST(SvgCanvas, colours_are_lightened) {
  constexpr Colour blue{0x10, 0x20, 0xf0};
  EXPECT_EQ(blue.text(), "#1020f0");
  EXPECT_EQ(blue.lightened(1).text(), "#ffffff");
  EXPECT_EQ(blue.lightened(0).text(), "#1020f0");
}

}  // namespace
}  // namespace penstock::svg_test
