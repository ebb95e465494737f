// Generators with several stages per rank, placed round robin: interleaved, looped-bfs, forward-only.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "penstock/schedule/schedule.h"
#include "tests/support/sanitized.h"

namespace penstock::generate_looped_test {
namespace {

TEST(GenerateLooped, interleaved) {
  EXPECT_EQ(timeline_grid(generate("interleaved", {.ranks = 2, .micro_batches = 4, .chunks = 2})),
            "rank 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1  .  2B2  .  2B3 0B2 0B3\n"
            "rank 1 |  .  1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3  .\n");
}

TEST(GenerateLooped, interleaved_has_no_phases_if_groups_are_uneven) {
  EXPECT_EQ(timeline_grid(generate("interleaved", {.ranks = 2, .micro_batches = 3, .chunks = 2})),
            "rank 0 | 0F0 0F1 0F2 2F0 2F1  .  2B0 2F2 2B1  .  2B2 0B0 0B1 0B2\n"
            "rank 1 |  .  1F0 1F1 1F2 3F0 3B0 3F1 3B1 3F2 3B2 1B0 1B1 1B2  .\n");
}

TEST(GenerateLooped, looped_bfs) {
  EXPECT_EQ(timeline_grid(generate("looped-bfs", {.ranks = 2, .micro_batches = 4, .chunks = 2})),
            "rank 0 | 0F0 0F1 0F2 0F3 2F0 2F1 2F2 2F3  .   .  2B0 2B1 2B2 2B3 0B0 0B1 0B2 0B3\n"
            "rank 1 |  .  1F0 1F1 1F2 1F3 3F0 3F1 3F2 3F3 3B0 3B1 3B2 3B3 1B0 1B1 1B2 1B3  .\n");
}

TEST(GenerateLooped, forward_only_over_several_chunks) {
  EXPECT_EQ(timeline_grid(generate("forward-only", {.ranks = 2, .micro_batches = 5, .chunks = 2})),
            "rank 0 | 0F0 0F1 2F0 2F1 0F2 0F3 0F4 2F2 2F3 2F4  .\n"
            "rank 1 |  .  1F0 1F1 3F0 3F1 1F2 1F3 1F4 3F2 3F3 3F4\n");
}

CsvSchedule torch_wrote(const char* name) {
  std::ifstream file(std::string(TESTS_FOLDER "/schedule/torch_csv/") + name, std::ios::binary);
  return read_torch_csv(std::string{std::istreambuf_iterator<char>(file), {}});
}

TEST(GenerateLooped, interleaved_equals_the_order_of_torch) {
  const Schedule ours = generate("interleaved", {.ranks = 4, .micro_batches = 8, .chunks = 2});
  EXPECT_EQ(ours.orders, torch_wrote("interleaved1f1b_p4_m8_v2_compute.csv").schedule.orders);
}

TEST(GenerateLooped, looped_bfs_has_the_forwards_of_torch_and_ascending_backwards) {
  const auto forwards = [](Schedule schedule) {
    for (Order& order : schedule.orders)
      std::erase_if(order, [](const Instruction& instruction) { return instruction.op() != Op::forward; });
    return schedule.orders;
  };
  const Schedule ours = generate("looped-bfs", {.ranks = 2, .micro_batches = 4, .chunks = 2});
  EXPECT_EQ(forwards(ours), forwards(torch_wrote("loopedbfs_p2_m4_v2_compute.csv").schedule));
}

TEST(GenerateLooped, closed_forms_of_looped_schedules) {
  const StageCosts costs{.forward = {3}, .input_grad = {2}, .weight_grad = {5}};
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 9; ++m)
      for (int v = 2; v <= 4; ++v) {
        const ScheduleShape shape{.ranks = p, .micro_batches = m, .chunks = v};
        // With fewer than p micro-batches, a chunk waits until the first one has passed all other ranks.
        const double instructions = (v - 1) * std::max(m, p) + m + p - 1;
        EXPECT_DOUBLE_EQ(simulate(generate("looped-bfs", shape), costs).makespan, instructions * 10);
        EXPECT_DOUBLE_EQ(simulate(generate("forward-only", shape), costs).makespan, instructions * 3);
        if (m % p == 0) {
          EXPECT_DOUBLE_EQ(simulate(generate("interleaved", shape), costs).makespan, instructions * 10);
        }
      }
}

TEST(GenerateLooped, interleaved_is_never_slower_than_gpipe_with_its_placement) {
  for (int p = 1; p <= 16; p += loop_step)
    for (int m = 1; m <= 64; m += m < 40 ? 1 : 5)
      for (int v = 2; v <= 4; ++v) {
        if (v > 2 && m > p && m % p != 0) continue;  // the memory limit makes it slower there
        const ScheduleShape shape{.ranks = p, .micro_batches = m, .chunks = v};
        EXPECT_LE(simulate(generate("interleaved", shape), StageCosts::unit()).makespan,
                  simulate(generate("looped-bfs", shape), StageCosts::unit()).makespan)
            << p << " " << m << " " << v;
      }
}

TEST(GenerateLooped, interleaved_holds_no_more_than_the_papers_first_rank) {
  for (int p = 1; p <= 16; p += loop_step)
    for (int m = 1; m <= 64; ++m)
      for (int v = 2; v <= 4; ++v) {
        const ScheduleShape shape{.ranks = p, .micro_batches = m, .chunks = v};
        const std::vector<int> held = validate(generate("interleaved", shape)).peak_activations;
        EXPECT_LE(*std::max_element(held.begin(), held.end()), p * v + p - 1) << p << " " << m << " " << v;
      }
}

/// Zero Bubble Pipeline Parallelism (arXiv 2401.10241): costs of Table 9, bubble rates of Table 5. The paper ran one
/// layer per chunk.
TEST(GenerateLooped, interleaved_matches_the_zero_bubble_papers_bubble_rates) {
  std::ifstream file(TESTS_FOLDER "/schedule/zero_bubble_table.csv");
  std::string line;
  std::getline(file, line);
  int rows = 0;
  for (; std::getline(file, line); ++rows) {
    std::istringstream cells(line);
    std::string model;
    std::getline(cells, model, ',');
    std::vector<double> row;
    for (std::string value; std::getline(cells, value, ',');) row.push_back(std::stod(value));
    const int chunks = model == "1.5B" ? 3 : 4;
    const StageCosts costs{.forward = {row[2] / chunks},
                           .input_grad = {row[3] / chunks},
                           .weight_grad = {row[4] / chunks},
                           .update = {0},
                           .message = row[5]};
    const ScheduleShape shape{
        .ranks = static_cast<int>(row[0]), .micro_batches = static_cast<int>(row[1]), .chunks = chunks};
    EXPECT_NEAR(simulate(lower(generate("interleaved", shape)), costs).bubble_span, row[7], 0.004) << line;
  }
  EXPECT_EQ(rows, 6);
}

}  // namespace
}  // namespace penstock::generate_looped_test
