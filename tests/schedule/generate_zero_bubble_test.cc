// The generators whose backward is split, one stage per rank: 1f1b-early, zb-h1, zb-h2, zb-auto.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <ostream>
#include <sstream>

#include "penstock/schedule/board.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/judge.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"

namespace penstock {
namespace {

Costs costs_of(double f, double i, double w) {
  return {.forward = {f}, .input_grad = {i}, .weight_grad = {w}};
}

/// The time that the slowest rank idles on its span, for equal stages.
double idle_time(const Schedule& schedule, const Costs& costs) {
  return simulate(schedule, costs).span -
         schedule.micro_batches * (costs.forward[0] + costs.input_grad[0] + costs.weight_grad[0]);
}

TEST(GenerateZeroBubble, early_one_f_one_b) {
  EXPECT_EQ(board(generate("1f1b-early", {.ranks = 2, .micro_batches = 4})),
            "rank 0 | 0F0 0F1  .  0I0 0W0 0F2 0I1 0W1 0F3 0I2 0W2  .  0I3 0W3\n"
            "rank 1 |  .  1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2 1F3 1I3 1W3  .\n");
}

TEST(GenerateZeroBubble, zb_h1) {
  EXPECT_EQ(board(generate("zb-h1", {.ranks = 3, .micro_batches = 4})),
            "rank 0 | 0F0 0F1 0F2  .   .  0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3\n"
            "rank 1 |  .  1F0 1F1  .  1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3\n"
            "rank 2 |  .   .  2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3\n");
}

TEST(GenerateZeroBubble, zb_h2) {
  EXPECT_EQ(board(generate("zb-h2", {.ranks = 3, .micro_batches = 6})),
            "rank 0 | 0F0 0F1 0F2 0F3 0F4 0I0 0W0 0F5 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5  .   .\n"
            "rank 1 |  .  1F0 1F1 1F2 1I0 1F3 1I1 1F4 1I2 1W0 1F5 1I3 1W1 1I4 1W2 1I5 1W3 1W4 1W5  .\n"
            "rank 2 |  .   .  2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2F4 2I4 2W0 2F5 2I5 2W1 2W2 2W3 2W4 2W5\n");
}

TEST(GenerateZeroBubble, without_neighbours_the_words_are_split_all_the_same) {
  for (const char* name : {"1f1b-early", "zb-h1", "zb-h2"}) {
    EXPECT_EQ(board(generate(name, {.ranks = 1, .micro_batches = 2})), "rank 0 | 0F0 0I0 0W0 0F1 0I1 0W1\n") << name;
    EXPECT_EQ(board(generate(name, {.ranks = 2, .micro_batches = 1})),
              "rank 0 | 0F0  .   .  0I0 0W0\n"
              "rank 1 |  .  1F0 1I0 1W0  .\n") << name;
  }
}

/// p <= 16, m <= 64, m >= 2p, every mix of 1, 2 and 3 for F, I and W with W <= F: the domain of the paper's formulas.
TEST(GenerateZeroBubble, no_rank_idles_for_longer_than_the_formula_says) {
  for (const char* name : {"1f1b-early", "zb-h1", "zb-h2"}) {
    const Generator& generator = find_generator(name);
    for (int p = 1; p <= 16; ++p)
      for (const int m : {2 * p, 2 * p + 1, 3 * p, 64}) {
        const ScheduleShape shape{.ranks = p, .micro_batches = m};
        const Schedule schedule = generate(name, shape);
        for (int mix = 0; mix < 27; ++mix) {
          const Costs costs = costs_of(1 + mix % 3, 1 + mix / 3 % 3, 1 + mix / 9);
          if (costs.weight_grad > costs.forward) continue;
          EXPECT_LE(idle_time(schedule, costs), generator.bubble_time(shape, costs))
              << name << " p " << p << " m " << m << " F " << costs.forward[0] << " I " << costs.input_grad[0] << " W "
              << costs.weight_grad[0];
        }
      }
  }
}

TEST(GenerateZeroBubble, the_early_gradient_saves_w_whatever_the_costs) {
  for (int p = 1; p <= 8; ++p)
    for (const double w : {0.0, 0.5, 1.0, 7.0}) {
      const ScheduleShape shape{.ranks = p, .micro_batches = 2 * p};
      EXPECT_DOUBLE_EQ(idle_time(generate("1f1b-early", shape), costs_of(2, 3, w)), 5 * (p - 1)) << p << " " << w;
      EXPECT_DOUBLE_EQ(idle_time(generate("1f1b", shape), costs_of(2, 3, w)), (5 + w) * (p - 1)) << p << " " << w;
    }
}

TEST(GenerateZeroBubble, where_the_formula_ends_only_the_way_of_the_gradients_is_left) {
  for (int p = 2; p <= 8; ++p) {  // W > F
    const ScheduleShape shape{.ranks = p, .micro_batches = 2 * p};
    EXPECT_DOUBLE_EQ(idle_time(generate("zb-h1", shape), costs_of(1, 2, 5)), 2 * (p - 1));
  }
}

TEST(GenerateZeroBubble, is_never_slower_than_gpipe_where_all_words_cost_the_same) {
  for (const char* name : {"1f1b-early", "zb-h1", "zb-h2"})
    for (int p = 1; p <= 12; ++p)
      for (int m = 1; m <= 24; ++m) {
        const ScheduleShape shape{.ranks = p, .micro_batches = m};
        EXPECT_LE(simulate(generate(name, shape), Costs::unit()).makespan,
                  simulate(generate("gpipe", shape), Costs::unit()).makespan)
            << name << " p " << p << " m " << m;
      }
}

/// One figure of Zero Bubble Pipeline Parallelism (arXiv 2401.10241): costs of Table 9, bubble rate of Table 5.
struct Cell {
  std::string model;
  ScheduleShape shape;
  Costs costs;
  std::string schedule;
  double bubble = 0;

  friend std::ostream& operator<<(std::ostream& out, const Cell& cell) {
    return out << cell.schedule << " for " << cell.model << " p " << cell.shape.ranks << " m "
               << cell.shape.micro_batches;
  }
};

std::vector<std::string> split_at_commas(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream rest(line);
  for (std::string cell; std::getline(rest, cell, ',');) cells.push_back(cell);
  return cells;
}

/// The cells of the columns named, as "column" or "column=schedule".
std::vector<Cell> published(const std::vector<std::string>& columns) {
  std::ifstream file(FIXTURES "/zero_bubble_table.csv");
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> head = split_at_commas(line);
  std::vector<Cell> cells;
  while (std::getline(file, line)) {
    const std::vector<std::string> row = split_at_commas(line);
    for (std::size_t column = 7; column < row.size(); ++column) {
      if (std::find(columns.begin(), columns.end(), head.at(column)) == columns.end()) continue;
      Costs costs = costs_of(std::stod(row[3]), std::stod(row[4]), std::stod(row[5]));
      costs.message = std::stod(row[6]);
      cells.push_back({row[0], {.ranks = std::stoi(row[1]), .micro_batches = std::stoi(row[2])}, costs,
                       head[column], std::stod(row[column])});
    }
  }
  return cells;
}

constexpr double last_digit = 0.00005;  // the table has four decimals

class PublishedBubble : public testing::TestWithParam<Cell> {};

TEST_P(PublishedBubble, is_met) {
  const Cell& cell = GetParam();
  EXPECT_NEAR(simulate(lower(generate(cell.schedule, cell.shape)), cell.costs).bubble_span, cell.bubble, last_digit)
      << cell;
}

INSTANTIATE_TEST_SUITE_P(GenerateZeroBubble, PublishedBubble, testing::ValuesIn(published({"1f1b", "zb-h1", "zb-h2"})));

TEST(GenerateZeroBubble, finds_all_published_cells) {
  EXPECT_EQ(published({"1f1b", "zb-h1", "zb-h2", "zb-1p", "zb-2p"}).size(), 30u);
}

TEST(GenerateZeroBubble, early_gradients_lower_the_published_bubble_of_1f1b) {
  for (const Cell& cell : published({"1f1b"})) {
    const double bubble = simulate(lower(generate("1f1b-early", cell.shape)), cell.costs).bubble_span;
    EXPECT_LT(bubble, cell.bubble) << cell;
    if (cell.shape.micro_batches != 24) continue;
    EXPECT_NEAR(bubble, cell.model == "1.5B" ? 0.1936 : 0.1817, last_digit) << cell;
  }
}

}  // namespace
}  // namespace penstock
