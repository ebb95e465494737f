#include "penstock/trace/schedule_table.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/schedule/schedule.h"
#include "tests/base/error_text.h"

namespace penstock::schedule_table_test {
namespace {

TEST(ScheduleTable, matches_the_figures_of_1f1b) {
  const StepFigures figures = simulated_figures(generate("1f1b", {.ranks = 4, .micro_batches = 8}), StageCosts::unit());
  EXPECT_DOUBLE_EQ(figures.bubble_span, 3.0 / 11);
  EXPECT_DOUBLE_EQ(figures.bubble_makespan, 3.0 / 11);
  EXPECT_EQ(figures.live, 4);
  EXPECT_EQ(figures.messages, 2 * 3 * 8);
}

TEST(ScheduleTable, has_a_row_for_each_generator_with_chunks_if_it_permits_them) {
  for (const std::optional<int> chunks : {std::optional<int>(), std::optional(3)}) {
    const std::vector<TableRow> rows = schedule_table({.ranks = 2, .micro_batches = 4, .chunks = chunks});
    ASSERT_EQ(rows.size(), generators().size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const ScheduleGenerator& generator = generators()[i];
      const bool takes = chunks && generator.min_chunks <= *chunks && generator.max_chunks >= *chunks;
      EXPECT_EQ(rows[i].schedule, generator.name);
      EXPECT_EQ(rows[i].shape.chunks, takes ? 3 : generator.default_chunks) << generator.name;
      EXPECT_FALSE(rows[i].measured);
    }
  }
}

TEST(ScheduleTable, as_markdown) {
  const TableRow row{.schedule = "1f1b",
                     .shape = {.ranks = 4, .micro_batches = 8},
                     .bubble_formula = "(p-1)(F+I+W)",
                     .memory_formula = "min(m, p)",
                     .message_formula = "",
                     .simulated = {.bubble_span = 0.25, .bubble_makespan = 0.5, .live = 3.5, .messages = 48},
                     .measured = {}};
  EXPECT_EQ(to_markdown(std::vector{row}),
            "| schedule | v | idle time | bubble, span | bubble, makespan | activations | simulated | messages | "
            "simulated |\n"
            "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            "| 1f1b | 1 | (p-1)(F+I+W) | 25.0 % | 50.0 % | min(m, p) | 3.5 | - | 48 |\n");
}

TEST(ScheduleTable, measured_values_have_columns_if_there_are_any) {
  std::vector<TableRow> rows = schedule_table({.ranks = 2, .micro_batches = 4, .chunks = {}});
  EXPECT_EQ(to_markdown(rows).find("measured"), std::string::npos);
  rows[0].measured = {.bubble_span = 0.1, .bubble_makespan = 0.123, .live = 1, .messages = 16};
  EXPECT_THROW(schedule_table({.ranks = 0, .micro_batches = 4, .chunks = {}}), ConfigError);
  for (const int chunks : {65, 0, -3})
    EXPECT_THROW(schedule_table({.ranks = 2, .micro_batches = 4, .chunks = chunks}), ConfigError) << chunks;
  const std::string text = to_markdown(rows);
  EXPECT_TRUE(
      test::says(text, "| bubble, measured | activations | simulated | measured | messages | simulated | measured |\n",
                 "| sequential | 1 | (p-1)m(F+I+W) | 50.0 % | 50.0 % | 12.3 % | 1 | 1 | 1 | 2(p-1)m | 8 | 16 |\n"))
      << text;
  EXPECT_NE(text.find("| 8 | - |\n"), std::string::npos) << "of a row that was not measured";
  EXPECT_NE(to_table(rows).find("12.3 %"), std::string::npos);
}

}  // namespace
}  // namespace penstock::schedule_table_test
