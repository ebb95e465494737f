#include "penstock/schedule/generate.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/timeline_grid.h"
#include "penstock/schedule/validate.h"
#include "tests/base/error_text.h"
#include "tests/support/sanitized.h"

namespace penstock::generate_test {
namespace {

constexpr const char* all_names =
    "sequential, gpipe, 1f1b, 1f1b-early, interleaved, looped-bfs, zb-h1, zb-h2, zb-auto, zb-v, v-half, v-min, "
    "dualpipe-v, hanayo, chimera, forward-only";

TEST(Generate, sequential) {
  EXPECT_EQ(timeline_grid(generate("sequential", {.ranks = 2, .micro_batches = 2})),
            "rank 0 | 0F0  .   .  0B0 0F1  .   .  0B1\n"
            "rank 1 |  .  1F0 1B0  .   .  1F1 1B1  .\n");
}

TEST(Generate, gpipe) {
  EXPECT_EQ(timeline_grid(generate("gpipe", {.ranks = 2, .micro_batches = 4})),
            "rank 0 | 0F0 0F1 0F2 0F3  .   .  0B0 0B1 0B2 0B3\n"
            "rank 1 |  .  1F0 1F1 1F2 1F3 1B0 1B1 1B2 1B3  .\n");
}

TEST(Generate, one_f_one_b) {
  EXPECT_EQ(timeline_grid(generate("1f1b", {.ranks = 2, .micro_batches = 4})),
            "rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3\n"
            "rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .\n");
  EXPECT_EQ(timeline_grid(generate("1f1b", {.ranks = 4, .micro_batches = 2})),
            "rank 0 | 0F0 0F1  .   .   .   .   .  0B0  .  0B1\n"
            "rank 1 |  .  1F0 1F1  .   .   .  1B0  .  1B1  .\n"
            "rank 2 |  .   .  2F0 2F1  .  2B0  .  2B1  .   .\n"
            "rank 3 |  .   .   .  3F0 3B0 3F1 3B1  .   .   .\n");
}

TEST(Generate, forward_only) {
  EXPECT_EQ(timeline_grid(generate("forward-only", {.ranks = 2, .micro_batches = 4})),
            "rank 0 | 0F0 0F1 0F2 0F3  .\n"
            "rank 1 |  .  1F0 1F1 1F2 1F3\n");
}

void expect_valid_within_its_bound(const ScheduleGenerator& generator, const ScheduleShape& shape) {
  SCOPED_TRACE(say(generator.name, " p ", shape.ranks, " m ", shape.micro_batches, " v ", shape.chunks));
  const Schedule schedule = generate(generator.name, shape);
  const ValidateOptions bound{.links = {}, .activation_bound = generator.activation_bound(shape, {})};
  for (const Schedule& form : {schedule, lower(schedule)}) {
    const Validation result = validate(form, bound);
    ASSERT_EQ(result.reason, "");
    // The bound is reached, with exceptions: zb-auto uses only the memory that shortens the step; v-min frees early and
    // stays below for few micro-batches; interleaved without phases, hanayo and chimera have the same bound for all
    // ranks.
    if (generator.name == "zb-auto" || generator.name == "hanayo" || generator.name == "chimera") continue;
    if (generator.name == "v-min" && shape.micro_batches < 2 * shape.ranks) continue;
    if (generator.name == "interleaved" && shape.micro_batches % shape.ranks != 0) continue;
    EXPECT_EQ(result.peak_activations, *bound.activation_bound);
  }
  EXPECT_GT(simulate(schedule, StageCosts::unit()).makespan, 0);
  EXPECT_EQ(schedule.name, generator.name);
}

TEST(Generate, every_generator_is_valid_within_its_bound_for_every_shape) {
  for (const ScheduleGenerator& generator : generators())
    for (int v = generator.min_chunks; v <= std::min(generator.max_chunks, 3); ++v)
      for (int p = 1; p <= 12; p += loop_step)
        for (int m = 1; m <= 24; ++m)
          expect_valid_within_its_bound(generator, {.ranks = p, .micro_batches = m, .chunks = v});
}

/// Expects that at C = 0 no rank idles on the span for longer than the formula of the generator's source.
void expect_bubble_within_its_formula(const ScheduleGenerator& generator, const ScheduleShape& shape,
                                      const StageCosts& costs) {
  const Simulation run =
      simulate(generate(generator.name, shape, {.costs = costs, .memory_limit = TimesOf1F1B{1}}), costs);
  const double busy = *std::max_element(run.busy.begin(), run.busy.end());
  // The only exception: for these shapes, interleaved cannot reach the formula within its memory.
  const bool is_odd = generator.name == "interleaved" && shape.ranks == 2 && shape.chunks == 3;
  const double excess = is_odd && shape.micro_batches % 2 == 1 ? costs.forward.front() : 0;
  const double formula = generator.bubble_time(shape, costs) + excess;
  EXPECT_LE(run.span - busy, formula + 1e-9 * run.span)
      << generator.name << " p " << shape.ranks << " m " << shape.micro_batches << " v " << shape.chunks;
}

TEST(Generate, no_bubble_is_longer_than_its_formula) {
  const StageCosts equal = StageCosts::unit();
  for (const ScheduleGenerator& generator : generators())
    for (int v = generator.min_chunks; generator.bubble_time && v <= std::min(generator.max_chunks, 3); ++v)
      for (int p = 1; p <= 16; p += loop_step)
        for (int m = 2 * p; m <= 64; ++m)
          expect_bubble_within_its_formula(generator, {.ranks = p, .micro_batches = m, .chunks = v}, equal);
}

TEST(Generate, sequential_has_one_busy_rank_at_a_time) {
  const Simulation run = simulate(lower(generate("sequential", {.ranks = 3, .micro_batches = 4})), StageCosts::unit(),
                                  {.links = {}, .keep_slots = true});
  double busy = 0;
  for (const double rank : run.busy) busy += rank;
  EXPECT_EQ(run.makespan, busy);
}

TEST(Generate, lists_all_generators) {
  std::string names;
  for (const ScheduleGenerator& generator : generators()) {
    names += (names.empty() ? "" : ", ") + std::string(generator.name);
    EXPECT_FALSE(generator.summary.empty());
    EXPECT_LE(generator.default_chunks, generator.max_chunks);
    EXPECT_EQ(&find_generator(generator.name), &generator);
  }
  EXPECT_EQ(names, all_names);
}

std::string refusal(std::string_view name, const ScheduleShape& shape) {
  return test::error_text<ConfigError>([&] { generate(name, shape); });
}

TEST(Generate, refuses_invalid_costs) {
  for (const ScheduleGenerator& generator : generators()) {
    const ScheduleShape shape{.ranks = 2, .micro_batches = 4, .chunks = generator.default_chunks};
    const auto with = [&](const StageCosts& costs) {
      generate(generator.name, shape, {.costs = costs, .memory_limit = TimesOf1F1B{1}});
    };
    EXPECT_NO_THROW(with({.forward = std::vector<double>(2 * static_cast<std::size_t>(shape.chunks), 1)}));
    EXPECT_THROW(with({.forward = {1, 1, 1}}), ConfigError) << generator.name;
    EXPECT_THROW(with({.weight_share = 2}), ConfigError) << generator.name;
  }
}

TEST(Generate, knows_the_names_of_torch_and_of_papers) {
  for (const auto& [name, ours] : {std::pair{"Interleaved1F1B", "interleaved"},
                                   {"ZBVZeroBubble", "zb-v"},
                                   {"GPipe", "gpipe"},
                                   {"1F1B", "1f1b"},
                                   {"LoopedBFS", "looped-bfs"},
                                   {"DualPipeV", "dualpipe-v"},
                                   {"ZB-H1", "zb-h1"},
                                   {"zb_h2", "zb-h2"}})
    EXPECT_EQ(find_generator(name).name, ours) << name;
  EXPECT_EQ(known_generator("InterleavedZeroBubble"), nullptr);
}

TEST(Generate, refuses_invalid_shapes) {
  EXPECT_EQ(refusal("1f1f", {}), say("no schedule is called '1f1f': did you mean '1f1b'? There are ", all_names));
  EXPECT_EQ(refusal("1f1b", {.ranks = 0}), "a schedule for 0 ranks: at least 1 is needed");
  EXPECT_EQ(refusal("1f1b", {.ranks = 2, .micro_batches = 0}), "a schedule for 0 micro-batches: at least 1 is needed");
  EXPECT_EQ(refusal("1f1b", {.ranks = 2, .micro_batches = 4, .chunks = 0}),
            "a schedule with 0 chunks per rank: at least 1 is needed");
  EXPECT_EQ(refusal("1f1b", {.ranks = 2, .micro_batches = 4, .chunks = 2}),
            "schedule '1f1b' takes exactly 1 chunk per rank, not 2; with more it would be the schedule "
            "'interleaved'");
  EXPECT_EQ(refusal("gpipe", {.ranks = 2, .micro_batches = 4, .chunks = 2}),
            "schedule 'gpipe' takes exactly 1 chunk per rank, not 2; with more it would be the looped schedule "
            "'looped-bfs'");
  EXPECT_EQ(refusal("interleaved", {.ranks = 2, .micro_batches = 4}),
            "schedule 'interleaved' takes at least 2 chunks per rank, not 1; with 1 it would be the schedule '1f1b'");
  EXPECT_EQ(refusal("looped-bfs", {.ranks = 2, .micro_batches = 4}),
            "schedule 'looped-bfs' takes at least 2 chunks per rank, not 1; with 1 it would be the schedule 'gpipe'");
  EXPECT_EQ(refusal("gpipe", {.ranks = 100000}),
            "100000 ranks x 1 chunks are 100000 stages: at most 65536 are possible");
  EXPECT_NE(refusal("gpipe", {.ranks = 65536, .micro_batches = 2000000000}), "[no error]");
}

}  // namespace
}  // namespace penstock::generate_test
