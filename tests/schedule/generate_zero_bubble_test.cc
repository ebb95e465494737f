// Generators with one stage per rank and a split backward: 1f1b-early, zb-h1, zb-h2, zb-auto.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <ostream>
#include <sstream>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/timeline_grid.h"
#include "penstock/schedule/validate.h"
#include "tests/support/sanitized.h"

namespace penstock::generate_zero_bubble_test {
namespace {

StageCosts costs_of(double f, double i, double w) { return {.forward = {f}, .input_grad = {i}, .weight_grad = {w}}; }

/// The idle time of the slowest rank on its span, for equal stages.
double idle_time(const Schedule& schedule, const StageCosts& costs) {
  return simulate(schedule, costs).span -
         schedule.micro_batches * (costs.forward[0] + costs.input_grad[0] + costs.weight_grad[0]);
}

TEST(GenerateZeroBubble, early_one_f_one_b) {
  EXPECT_EQ(timeline_grid(generate("1f1b-early", {.ranks = 2, .micro_batches = 4})),
            "rank 0 | 0F0 0F1  .  0I0 0W0 0F2 0I1 0W1 0F3 0I2 0W2  .  0I3 0W3\n"
            "rank 1 |  .  1F0 1I0 1W0 1F1 1I1 1W1 1F2 1I2 1W2 1F3 1I3 1W3  .\n");
}

TEST(GenerateZeroBubble, zb_h1) {
  EXPECT_EQ(timeline_grid(generate("zb-h1", {.ranks = 3, .micro_batches = 4})),
            "rank 0 | 0F0 0F1 0F2  .   .  0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3\n"
            "rank 1 |  .  1F0 1F1  .  1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3\n"
            "rank 2 |  .   .  2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3\n");
}

TEST(GenerateZeroBubble, zb_h2) {
  EXPECT_EQ(timeline_grid(generate("zb-h2", {.ranks = 3, .micro_batches = 6})),
            "rank 0 | 0F0 0F1 0F2 0F3 0F4 0I0 0W0 0F5 0I1 0W1 0I2 0W2 0I3 0W3 0I4 0W4 0I5 0W5  .   .\n"
            "rank 1 |  .  1F0 1F1 1F2 1I0 1F3 1I1 1F4 1I2 1W0 1F5 1I3 1W1 1I4 1W2 1I5 1W3 1W4 1W5  .\n"
            "rank 2 |  .   .  2F0 2I0 2F1 2I1 2F2 2I2 2F3 2I3 2F4 2I4 2W0 2F5 2I5 2W1 2W2 2W3 2W4 2W5\n");
}

TEST(GenerateZeroBubble, zb_auto) {
  EXPECT_EQ(timeline_grid(
                generate("zb-auto", {.ranks = 2, .micro_batches = 4}, {.costs = {}, .memory_limit = TimesOf1F1B{2}})),
            "rank 0 | 0F0 0F1 0F2 0I0 0F3 0I1 0W0 0I2 0W1 0I3 0W2 0W3  .\n"
            "rank 1 |  .  1F0 1I0 1F1 1I1 1F2 1I2 1F3 1I3 1W0 1W1 1W2 1W3\n");
}

TEST(GenerateZeroBubble, one_rank_has_split_backwards_too) {
  for (const char* name : {"1f1b-early", "zb-h1", "zb-h2", "zb-auto"}) {
    EXPECT_EQ(timeline_grid(generate(name, {.ranks = 1, .micro_batches = 2})), "rank 0 | 0F0 0I0 0W0 0F1 0I1 0W1\n")
        << name;
    EXPECT_EQ(timeline_grid(generate(name, {.ranks = 2, .micro_batches = 1})),
              "rank 0 | 0F0  .   .  0I0 0W0\n"
              "rank 1 |  .  1F0 1I0 1W0  .\n")
        << name;
  }
}

/// p <= 16, m <= 64, m >= 2p, every mix of 1, 2 and 3 for F, I and W with W <= F: the domain of the paper's formulas.
TEST(GenerateZeroBubble, idle_time_is_within_the_formula) {
  for (const char* name : {"1f1b-early", "zb-h1", "zb-h2"}) {
    const ScheduleGenerator& generator = find_generator(name);
    for (int p = 1; p <= 16; p += loop_step)
      for (const int m : {2 * p, 2 * p + 1, 3 * p, 64}) {
        const ScheduleShape shape{.ranks = p, .micro_batches = m};
        const Schedule schedule = generate(name, shape);
        for (int mix = 0; mix < 27; ++mix) {
          const StageCosts costs = costs_of(1 + mix % 3, 1 + mix / 3 % 3, 1 + mix / 9);
          if (costs.weight_grad > costs.forward) continue;
          EXPECT_LE(idle_time(schedule, costs), generator.bubble_time(shape, costs))
              << name << " p " << p << " m " << m << " F " << costs.forward[0] << " I " << costs.input_grad[0] << " W "
              << costs.weight_grad[0];
        }
      }
  }
}

TEST(GenerateZeroBubble, early_gradients_save_w_for_all_costs) {
  for (int p = 1; p <= 8; ++p)
    for (const double w : {0.0, 0.5, 1.0, 7.0}) {
      const ScheduleShape shape{.ranks = p, .micro_batches = 2 * p};
      EXPECT_DOUBLE_EQ(idle_time(generate("1f1b-early", shape), costs_of(2, 3, w)), 5 * (p - 1)) << p << " " << w;
      EXPECT_DOUBLE_EQ(idle_time(generate("1f1b", shape), costs_of(2, 3, w)), (5 + w) * (p - 1)) << p << " " << w;
    }
}

TEST(GenerateZeroBubble, beyond_the_formula_idle_time_is_that_of_the_gradients) {
  for (int p = 2; p <= 8; ++p) {  // W > F
    const ScheduleShape shape{.ranks = p, .micro_batches = 2 * p};
    EXPECT_DOUBLE_EQ(idle_time(generate("zb-h1", shape), costs_of(1, 2, 5)), 2 * (p - 1));
  }
}

TEST(GenerateZeroBubble, is_never_slower_than_gpipe_for_equal_costs) {
  for (const char* name : {"1f1b-early", "zb-h1", "zb-h2", "zb-auto"})
    for (int p = 1; p <= 12; p += loop_step)
      for (int m = 1; m <= 24; ++m) {
        const ScheduleShape shape{.ranks = p, .micro_batches = m};
        EXPECT_LE(simulate(generate(name, shape), StageCosts::unit()).makespan,
                  simulate(generate("gpipe", shape), StageCosts::unit()).makespan)
            << name << " p " << p << " m " << m;
      }
}

/// One cell of the tables in Zero Bubble Pipeline Parallelism (arXiv 2401.10241): costs of Table 9, bubble rate of
/// Table 5.
struct Cell {
  std::string model;
  ScheduleShape shape;
  StageCosts costs;
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

/// The cells of the given columns, each named "column" or "column=schedule".
std::vector<Cell> published(const std::vector<std::string>& columns) {
  std::ifstream file(TESTS_FOLDER "/schedule/zero_bubble_table.csv");
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> head = split_at_commas(line);
  std::vector<Cell> cells;
  while (std::getline(file, line)) {
    const std::vector<std::string> row = split_at_commas(line);
    for (std::size_t column = 7; column < row.size(); ++column) {
      if (std::find(columns.begin(), columns.end(), head.at(column)) == columns.end()) continue;
      StageCosts costs = costs_of(std::stod(row[3]), std::stod(row[4]), std::stod(row[5]));
      costs.message = std::stod(row[6]);
      cells.push_back({row[0],
                       {.ranks = std::stoi(row[1]), .micro_batches = std::stoi(row[2])},
                       costs,
                       head[column],
                       std::stod(row[column])});
    }
  }
  return cells;
}

constexpr double last_digit = 0.00005;  // the table has four decimals

class PublishedBubble : public testing::TestWithParam<Cell> {};

TEST_P(PublishedBubble, is_reached) {
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

/// The peak of a rank's activations if a micro-batch counts 1 from F to I and `weight_share` from there to W.
double most_held(const Schedule& schedule, double weight_share) {
  StageCosts costs;
  costs.weight_share = weight_share;
  const std::vector<double> peaks = simulate(schedule, costs).peak_activations;
  return *std::max_element(peaks.begin(), peaks.end());
}

Schedule zb_auto(const Cell& cell, double memory_limit) {
  return generate("zb-auto", cell.shape, {.costs = cell.costs, .memory_limit = TimesOf1F1B{memory_limit}});
}

class PublishedZb1p : public testing::TestWithParam<Cell> {};

TEST_P(PublishedZb1p, is_reached_within_the_memory_of_1f1b) {
  const Cell& cell = GetParam();
  const Schedule schedule = zb_auto(cell, 1);
  EXPECT_NEAR(simulate(lower(schedule), cell.costs).bubble_span, cell.bubble, last_digit) << cell;
  EXPECT_LE(most_held(schedule, 0.5), cell.shape.ranks) << cell;
}

INSTANTIATE_TEST_SUITE_P(GenerateZeroBubble, PublishedZb1p, testing::ValuesIn(published({"zb-1p"})));

class PublishedZb2p : public testing::TestWithParam<Cell> {};

TEST_P(PublishedZb2p, is_reached_within_twice_the_memory_of_1f1b) {
  const Cell& cell = GetParam();
  const Schedule schedule = zb_auto(cell, 2);
  EXPECT_LE(simulate(lower(schedule), cell.costs).bubble_span, cell.bubble + last_digit) << cell;
  EXPECT_LE(most_held(schedule, 0.5), 2 * cell.shape.ranks) << cell;
}

INSTANTIATE_TEST_SUITE_P(GenerateZeroBubble, PublishedZb2p, testing::ValuesIn(published({"zb-2p"})));

StageCosts counted_in_full(StageCosts costs) {
  costs.weight_share = 1;
  return costs;
}

/// Compares with the lower bound of idle time that the comment in generate_zb_auto.cc derives.
TEST(GenerateZeroBubble, zb_auto_is_near_the_lower_bound_for_its_memory) {
  for (const Cell& cell : published({"zb-2p"})) {
    const double way = cell.costs.forward[0] + cell.costs.input_grad[0] + 2 * cell.costs.message;
    const double least = (cell.shape.ranks - 1) * way - (2 * cell.shape.ranks - 1) * cell.costs.weight_grad[0];
    const Schedule schedule =
        generate("zb-auto", cell.shape, {.costs = counted_in_full(cell.costs), .memory_limit = TimesOf1F1B{2}});
    EXPECT_LE(most_held(schedule, 1), 2 * cell.shape.ranks) << cell;
    EXPECT_GE(idle_time(schedule, cell.costs), least * (1 - 1e-9)) << cell;
    EXPECT_LE(idle_time(schedule, cell.costs), least * 1.03) << cell;
  }
}

/// Various shapes and costs, also with unequal stages.
std::vector<Cell> many_cases() {
  std::vector<Cell> cases;
  for (const int p : {1, 2, 3, 5, 8})
    for (const int m : {1, p, p + 1, 2 * p - 1, 3 * p})
      for (const double w : {0.5, 1.7})
        for (const double message : {0.0, 0.3}) {
          StageCosts costs = costs_of(1, 0.8 + w / 4, w);
          costs.message = message;
          costs.overhead = message / 3;
          cases.push_back({"even", {.ranks = p, .micro_batches = m}, costs, "zb-auto", 0});
          costs.forward.assign(static_cast<std::size_t>(p), 1);
          costs.forward.back() = 1.5;
          costs.forward.front() = 0.25;
          cases.push_back({"uneven", {.ranks = p, .micro_batches = m}, costs, "zb-auto", 0});
        }
  return cases;
}

TEST(GenerateZeroBubble, zb_auto_is_never_worse_than_other_schedules_within_its_limit) {
  struct Rival {
    const char* name;
    double limit;
  };
  for (const Cell& cell : many_cases())
    for (const Rival& rival : {Rival{"1f1b-early", 1}, Rival{"zb-h1", 1}, Rival{"zb-h1", 1.5}, Rival{"zb-h2", 2}}) {
      const double auto_span = simulate(zb_auto(cell, rival.limit), cell.costs).span;
      const double rival_span = simulate(generate(rival.name, cell.shape), cell.costs).span;
      EXPECT_LE(auto_span, rival_span * (1 + 1e-9)) << cell << " (" << cell.model << ") against " << rival.name;
    }
}

TEST(GenerateZeroBubble, zb_auto_respects_every_limit) {
  for (const Cell& cell : many_cases())
    for (const double limit : {0.01, 0.5, 1.0, 1.3, 5.0})
      for (const double share : {0.0, 0.5, 1.0}) {
        Tuning tuning{.costs = cell.costs, .memory_limit = TimesOf1F1B{limit}};
        tuning.costs.weight_share = share;
        const Schedule schedule = generate("zb-auto", cell.shape, tuning);
        const double most = std::max(1.0, limit * std::min(cell.shape.ranks, cell.shape.micro_batches)) + 1e-9;
        const std::vector<int> bound = find_generator("zb-auto").activation_bound(cell.shape, tuning);
        const Validation result = validate(schedule, {.links = {}, .activation_bound = bound});
        ASSERT_TRUE(result.ok) << cell << " limit " << limit << " share " << share << ": " << result.reason;
        EXPECT_LE(most_held(schedule, share), most) << cell << " limit " << limit << " share " << share;
        if (share < 1) continue;
        EXPECT_EQ(bound.front(), std::min(cell.shape.micro_batches, static_cast<int>(most))) << cell;
      }
}

TEST(GenerateZeroBubble, zb_auto_respects_every_limit_in_bytes) {
  for (const Cell& cell : many_cases())
    for (const int units : {1, 2, 3, 10}) {
      Tuning tuning{.costs = cell.costs};
      tuning.costs.activation_bytes.clear();
      for (int s = 0; s < cell.shape.ranks; ++s) tuning.costs.activation_bytes.push_back(100 + 40 * (s % 3));
      const BytesPerRank limit{180 * units};  // the largest stage is of 180 bytes
      tuning.memory_limit = limit;
      const Schedule schedule = generate("zb-auto", cell.shape, tuning);
      const std::vector<int> bound = find_generator("zb-auto").activation_bound(cell.shape, tuning);
      const Validation result = validate(schedule, {.links = {}, .activation_bound = bound});
      ASSERT_TRUE(result.ok) << cell << " limit " << units << ": " << result.reason;
      EXPECT_TRUE(is_within_limit(schedule, limit, tuning.costs)) << cell << " limit " << units;
    }
}

TEST(GenerateZeroBubble, zb_auto_uses_the_bytes_that_small_stages_leave) {
  const ScheduleShape shape{.ranks = 2, .micro_batches = 8};
  Tuning tuning{.costs = {}, .memory_limit = BytesPerRank{400}};
  tuning.costs.weight_share = 1;
  tuning.costs.activation_bytes = {100, 200};
  EXPECT_EQ(find_generator("zb-auto").activation_bound(shape, tuning), (std::vector<int>{4, 2}));
  tuning.costs.activation_bytes = {100};
  const Schedule in_bytes = generate("zb-auto", shape, tuning);
  tuning.memory_limit = TimesOf1F1B{2};
  EXPECT_EQ(in_bytes, generate("zb-auto", shape, tuning)) << "four micro-batches in either unit";
  tuning.costs.activation_bytes.clear();
  tuning.memory_limit = BytesPerRank{400};
  EXPECT_THROW(generate("zb-auto", shape, tuning), ConfigError) << "without bytes of activations";
}

TEST(GenerateZeroBubble, zb_auto_refuses_invalid_limits_and_costs) {
  const ScheduleShape shape{.ranks = 3, .micro_batches = 4};
  EXPECT_THROW(generate("zb-auto", shape, {.costs = {.forward = {1, 2}}}), ConfigError);
  EXPECT_THROW(generate("zb-auto", shape, {.costs = {.weight_grad = {-1}}}), ConfigError);
  EXPECT_THROW(generate("zb-auto", shape, {.costs = {}, .memory_limit = TimesOf1F1B{0}}), ConfigError);
  for (const double share : {1.5, -0.5}) {
    StageCosts costs;
    costs.weight_share = share;
    EXPECT_THROW(generate("zb-auto", shape, {.costs = costs}), ConfigError) << share;
  }
}

TEST(GenerateZeroBubble, zb_auto_is_as_good_for_large_shapes_with_fewer_candidates) {
  const ScheduleShape shape{.ranks = 16, .micro_batches = 3000};  // more than 2^17 instructions
  const StageCosts costs = costs_of(1, 1.25, 0.75);
  const auto span = [&](const Schedule& schedule) { return simulate(schedule, costs).span; };
  EXPECT_LE(span(generate("zb-auto", shape, {.costs = costs})), span(generate("zb-h1", shape)));
  EXPECT_LE(span(generate("zb-auto", shape, {.costs = costs, .memory_limit = TimesOf1F1B{2}})),
            span(generate("zb-h2", shape)));
}

}  // namespace
}  // namespace penstock::generate_zero_bubble_test
