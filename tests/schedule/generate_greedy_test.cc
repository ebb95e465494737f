// Hanayo's waves and Chimera's two pipelines: drawings, and what their papers publish.
#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/timeline_grid.h"
#include "tests/support/sanitized.h"

namespace penstock::generate_greedy_test {
namespace {

TEST(GenerateGreedy, hanayo) {
  EXPECT_EQ(timeline_grid(generate("hanayo", {.ranks = 2, .micro_batches = 4, .chunks = 2})),
            "rank 0 | 0F0 0F1 0F2 3F0 3B0 3F1 3B1 0F3 0B0 3F2 3B2  .  0B1 3F3 3B3 0B2  .  0B3\n"
            "rank 1 |  .  1F0 2F0 1F1 2F1 2B0 1F2 1B0 2F2 2B1 1F3 1B1 2F3 2B2 1B2 2B3 1B3  .\n");
}

TEST(GenerateGreedy, chimera) {
  EXPECT_EQ(timeline_grid(generate("chimera", {.ranks = 4, .micro_batches = 4})),
            "rank 0 | 0F0 0F2  .  3F1 3B1 3F3 3B3 0B0  .  0B2\n"
            "rank 1 |  .  1F0 2F1 1F2 2F3 2B1 1B0 2B3 1B2  .\n"
            "rank 2 |  .  1F1 2F0 1F3 2F2 2B0 1B1 2B2 1B3  .\n"
            "rank 3 | 0F1 0F3  .  3F0 3B0 3F2 3B2 0B1  .  0B3\n");
}

TEST(GenerateGreedy, waves_go_down_and_up) {
  const Schedule schedule = generate("hanayo", {.ranks = 3, .micro_batches = 1, .chunks = 4});
  std::vector<int> ranks;
  for (const Rank rank : schedule.rank_of_stage) ranks.push_back(rank.value());
  EXPECT_EQ(ranks, (std::vector<int>{0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0}));
}

/// The idle time of a rank at F = 1 and B = `b`, in forwards of one chunk.
double idle(std::string_view name, const ScheduleShape& shape, double b) {
  const StageCosts costs{.forward = {1}, .input_grad = {b / 2}, .weight_grad = {b / 2}};
  return simulate(generate(name, shape), costs).makespan - shape.chunks * shape.micro_batches * (1 + b);
}

TEST(GenerateGreedy, chimera_has_the_bubbles_of_its_paper) {
  for (int p = 2; p <= 16; p += 2) {
    // The paper's bubble ratio with N = D: (D-2) / (3N/2 + D-2).
    const double bubble =
        simulate(generate("chimera", {.ranks = p, .micro_batches = p}), StageCosts::unit()).bubble_span;
    EXPECT_NEAR(bubble, (p - 2) / (1.5 * p + p - 2), 1e-12) << p;
    // (D-2) / (2N + D-2) with B = F.
    const double at_equal = idle("chimera", {.ranks = p, .micro_batches = p}, 1);
    if (p <= 6) {
      EXPECT_EQ(at_equal, p - 2) << p;
    }
    EXPECT_LE(at_equal, p + 2) << p;
  }
}

TEST(GenerateGreedy, chimera_idles_no_longer_for_more_micro_batches) {
  for (int p = 2; p <= 8; p += 2)
    for (int m = 2 * p; m <= 12 * p; m += p)
      EXPECT_LE(idle("chimera", {.ranks = p, .micro_batches = m}, 2), 2 * p) << m;
}

TEST(GenerateGreedy, chimera_holds_the_activations_of_its_paper) {
  for (int p = 2; p <= 12; p += 2) {
    const std::vector<int> held =
        simulate(generate("chimera", {.ranks = p, .micro_batches = p}), StageCosts::unit()).peak_contexts;
    EXPECT_EQ(held.front(), p / 2 + 1) << p;
    EXPECT_EQ(held.back(), p / 2 + 1) << p;
    EXPECT_EQ(*std::ranges::max_element(held), p) << p;
  }
}

TEST(GenerateGreedy, hanayo_has_the_bubbles_of_its_paper) {
  for (int p = 1; p <= 8; ++p) {
    EXPECT_EQ(idle("hanayo", {.ranks = p, .micro_batches = p, .chunks = 2}, 2), 4 * (p - 1)) << p;
    for (int waves = 1; waves <= 4; ++waves) {
      // (2P-2) idle times of 2F beside 3PW units of work, and a few forwards between waves.
      const double units = idle("hanayo", {.ranks = p, .micro_batches = p, .chunks = 2 * waves}, 2) / 2;
      EXPECT_GE(units, 2 * (p - 1)) << p << " " << waves;
      EXPECT_LE(units, 2 * (p - 1) * 1.1) << p << " " << waves;
    }
  }
}

TEST(GenerateGreedy, one_wave_idles_no_longer_for_more_micro_batches) {
  for (int p = 2; p <= 8; ++p)
    for (int m = 2 * p; m <= 8 * p; m += loop_step)
      EXPECT_LE(idle("hanayo", {.ranks = p, .micro_batches = m, .chunks = 2}, 2), 4 * p) << p << " " << m;
}

}  // namespace
}  // namespace penstock::generate_greedy_test
