// Generators with two chunks per rank, placed in a V: their orders, memory and bubbles.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/timeline_grid.h"
#include "penstock/schedule/torch_csv.h"
#include "penstock/schedule/validate.h"
#include "tests/support/sanitized.h"

namespace penstock::generate_v_test {
namespace {

constexpr std::string_view all_names[] = {"zb-v", "v-half", "v-min", "dualpipe-v"};

ScheduleShape shape_of(int ranks, int micro_batches) {
  return {.ranks = ranks, .micro_batches = micro_batches, .chunks = 2};
}

StageCosts equal_stages(double f, double i, double w) {
  return {.forward = {f}, .input_grad = {i}, .weight_grad = {w}};
}

/// The idle time of the rank with the longest span.
double bubble(std::string_view name, const ScheduleShape& shape, const StageCosts& costs = StageCosts::unit()) {
  const double work = costs.forward.front() + costs.input_grad.front() + costs.weight_grad.front();
  return simulate(generate(name, shape), costs).span - 2 * shape.micro_batches * work;
}

TEST(GenerateV, zb_v) {
  EXPECT_EQ("\n" + timeline_grid(generate("zb-v", shape_of(2, 4))), R"(
rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3  .
rank 1 |  .  1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3
)");
}

TEST(GenerateV, v_half) {
  EXPECT_EQ("\n" + timeline_grid(generate("v-half", shape_of(2, 4))), R"(
rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 0I0 0W0 3W1 3F2 0F3 3I2 0I1 0W1 3W2 3F3 3I3 0I2 0W2 0I3 3W3 0W3  .
rank 1 |  .  1F0 2F0 1F1 2F1 2I0 2W0 1I0 1W0 1F2 2F2 2I1 2W1 1I1 1W1 1F3 2F3 2I2 1I2 2I3 1I3 2W2 1W2 2W3 1W3
)");
}

TEST(GenerateV, v_min) {
  EXPECT_EQ("\n" + timeline_grid(generate("v-min", shape_of(2, 4))), R"(
rank 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 0I0 0W0 3I1 3W1 0F3 0I1 0W1 3F2 3I2 3W2  .  0I2 0W2 3F3 3I3 3W3  .  0I3 0W3
rank 1 |  .  1F0 2F0 1F1 2F1 2I0 1I0 2W0 1W0 1F2 2I1 1I1 2F2 2W1 1W1 1F3 2I2 1I2 2F3 2W2 1W2  .  2I3 1I3 2W3 1W3
)");
}

TEST(GenerateV, dualpipe_v) {
  EXPECT_EQ("\n" + timeline_grid(generate("dualpipe-v", shape_of(2, 4))), R"(
rank 0 | 0F0  0F1  0F2  3F0  3I0  3W0  3F1  0F3+ 3B1  3F2+ 0B0  3B2  3F3+ 0B1  3B3  0I2  0W2  0I3  0W3
rank 1 |  .   1F0  2F0  1F1  2F1  1F2  2B0  2F2+ 1B0  1F3+ 2B1  2F3+ 1B1  2B2  1B2  2I3  1I3  2W3  1W3
)");
}

TEST(GenerateV, zb_v_and_dualpipe_v_equal_those_of_torch) {
  for (const auto& [name, file] : {std::pair{"zb-v", "zbv"}, {"dualpipe-v", "dualpipev"}}) {
    std::ifstream stream(say(TESTS_FOLDER "/schedule/torch_csv/", file, "_p4_m8_v2_compute.csv"), std::ios::binary);
    const CsvSchedule csv = read_torch_csv(std::string{std::istreambuf_iterator<char>(stream), {}});
    const Schedule ours = generate(name, shape_of(4, 8));
    EXPECT_EQ(ours.orders, csv.schedule.orders) << name << "\n" << timeline_grid(ours) << timeline_grid(csv.schedule);
    EXPECT_EQ(ours.rank_of_stage, csv.schedule.rank_of_stage);
  }
}

/// The memory stated by the sources, in micro-batches of a whole rank.
double memory_cap(std::string_view name, int ranks) {
  if (name == "v-half") return (ranks + 2) / 2;
  if (name == "v-min") return (ranks + 4) / 3;
  return name == "dualpipe-v" ? ranks + 0.5 : ranks;
}

TEST(GenerateV, memory_stays_within_the_sources_caps) {
  for (const std::string_view name : all_names)
    for (int p = 1; p <= 32; p += loop_step)
      for (const int m : {1, 2, 3, 5, 8, 13, p, 2 * p - 1, 2 * p, 63, 64}) {
        const Schedule schedule = generate(name, shape_of(p, m));
        const auto bound = find_generator(name).activation_bound(shape_of(p, m), {});
        for (const Schedule& form : {schedule, lower(schedule)}) {
          const Validation result = validate(form, {.links = {}, .activation_bound = bound});
          ASSERT_TRUE(result.ok) << name << " p " << p << " m " << m << ": " << result.reason;
        }
        const Simulation run = simulate(schedule, StageCosts::unit());
        for (const double peak : run.peak_activations) {
          ASSERT_LE(peak, memory_cap(name, p)) << name << " p " << p << " m " << m;
          if (m < 2 * p) continue;
          ASSERT_EQ(peak, memory_cap(name, p)) << name << " p " << p << " m " << m;
        }
      }
}

TEST(GenerateV, bubbles_match_the_formulas_of_the_sources) {
  for (const std::string_view name : all_names)
    for (int p = 1; p <= 16; p += loop_step)
      for (int m = 2 * p; m <= 64; ++m)
        ASSERT_LE(bubble(name, shape_of(p, m)), find_generator(name).bubble_time(shape_of(p, m), StageCosts::unit()))
            << name << " p " << p << " m " << m;
}

TEST(GenerateV, bubbles_match_the_formulas_for_unequal_costs) {
  EXPECT_TRUE(rc::check("zb-v: uses; dualpipe-v: where no instruction outweighs the others", [] {
    const int p = *rc::gen::inRange(1, 10);
    const ScheduleShape shape = shape_of(p, 2 * p + *rc::gen::inRange(0, 20));
    const auto f = *rc::gen::inRange(1, 100), i = *rc::gen::inRange(1, 100), w = *rc::gen::inRange(1, 100);
    const StageCosts costs = equal_stages(f, i, w);
    RC_ASSERT(bubble("zb-v", shape, costs) <= find_generator("zb-v").bubble_time(shape, costs));
    if (f <= 2 * i && w <= 2 * i && w <= f + i)
      RC_ASSERT(bubble("dualpipe-v", shape, costs) <= find_generator("dualpipe-v").bubble_time(shape, costs));
  }));
}

TEST(GenerateV, the_steady_phase_of_v_half_has_no_bubble) {
  EXPECT_TRUE(rc::check("if W + 2I >= 2F and W + 2F >= 2I, more micro-batches cost no idle time", [] {
    const int p = *rc::gen::inRange(1, 10);
    const auto f = *rc::gen::inRange(1, 100), i = *rc::gen::inRange(1, 100);
    const StageCosts costs = equal_stages(f, i, 2 * std::abs(f - i) + *rc::gen::inRange(0, 20));
    RC_ASSERT(bubble("v-half", shape_of(p, 8 * p), costs) <= bubble("v-half", shape_of(p, 4 * p), costs));
  }));
  // The block of V-Min has no slack, so its bubble grows.
  const StageCosts costs = equal_stages(2, 2, 1);
  EXPECT_GT(bubble("v-min", shape_of(4, 32), costs), bubble("v-min", shape_of(4, 16), costs));
}

/// GPipe with the same placement: each rank runs all forwards in the order of their arrival, then all backwards.
Schedule gpipe_in_a_v(const ScheduleShape& shape) {
  Schedule schedule = generate("zb-v", shape);  // for the placement
  for (int rank = 0; rank < shape.ranks; ++rank) {
    Order& order = schedule.orders[static_cast<std::size_t>(rank)];
    order.clear();
    const StageId down(rank), up(2 * shape.ranks - 1 - rank);
    const auto flow = [&](Op op, StageId near, StageId far) {
      const int ahead = 2 * (shape.ranks - 1 - rank) + 1;
      for (int k = 0; k < shape.micro_batches + ahead; ++k) {
        if (k >= ahead) order.push_back(Instruction::compute(op, far, MicroBatch(k - ahead)));
        if (k < shape.micro_batches) order.push_back(Instruction::compute(op, near, MicroBatch(k)));
      }
    };
    flow(Op::forward, down, up);
    flow(Op::backward, up, down);
  }
  return schedule;
}

TEST(GenerateV, no_shape_is_slower_than_gpipe_in_a_v) {
  for (int p = 1; p <= 12; p += loop_step)
    for (int m = 1; m <= 24; ++m) {
      const double gpipe = simulate(gpipe_in_a_v(shape_of(p, m)), StageCosts::unit()).makespan;
      ASSERT_EQ(gpipe, 6 * (m + p - 1));  // no stalls
      for (const std::string_view name : all_names)
        EXPECT_LE(simulate(generate(name, shape_of(p, m)), StageCosts::unit()).makespan, gpipe)
            << name << " p " << p << " m " << m;
    }
}

TEST(GenerateV, schedules_differ_from_two_micro_batches_on) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 2; m <= 20; ++m)
      for (const std::string_view one : all_names)
        for (const std::string_view other : all_names) {
          if (one == other) break;
          EXPECT_NE(generate(one, shape_of(p, m)).orders, generate(other, shape_of(p, m)).orders)
              << one << " and " << other << " p " << p << " m " << m;
        }
}

TEST(GenerateV, dualpipe_v_pairs_have_a_forward_and_a_backward_of_the_other_chunk) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 20; ++m) {
      int pairs = 0;
      for (const Order& order : generate("dualpipe-v", shape_of(p, m)).orders)
        for (std::size_t k = 0; k < order.size(); ++k) {
          if (!order[k].overlaps_next()) continue;
          ++pairs;
          ASSERT_LT(k + 1, order.size());
          EXPECT_EQ(order[k].op(), Op::forward);
          EXPECT_EQ(order[k + 1].op(), Op::backward);
          EXPECT_NE(order[k].stage(), order[k + 1].stage());
          EXPECT_FALSE(order[k + 1].overlaps_next());
        }
      if (m < 2 * p) continue;
      EXPECT_EQ(pairs, 2 * p * m - p * (5 * p - 1) / 2 - 1) << "p " << p << " m " << m;
    }
}

TEST(GenerateV, messages_cross_every_boundary_but_the_middle_one) {
  for (const std::string_view name : all_names) {
    std::size_t sends = 0;
    for (const Order& order : lower(generate(name, shape_of(5, 7))).orders)
      sends += static_cast<std::size_t>(std::count_if(
          order.begin(), order.end(), [](const Instruction& instruction) { return is_send(instruction.op()); }));
    EXPECT_EQ(sends, 4 * (5 - 1) * 7) << name;
  }
}

TEST(GenerateV, many_micro_batches_on_many_ranks) {
  for (const std::string_view name : all_names) {
    const Validation result = validate(generate(name, shape_of(64, 512)));
    EXPECT_TRUE(result.ok) << name << ": " << result.reason;
  }
}

}  // namespace
}  // namespace penstock::generate_v_test
