#include "penstock/schedule/memory_limit.h"

#include <gtest/gtest.h>

#include <limits>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/weight_gradients.h"
#include "tests/base/error_text.h"

namespace penstock::memory_limit_test {
namespace {

TEST(MemoryLimit, counts_micro_batches_of_each_ranks_chunks) {
  const Schedule uneven{"uneven", 8, {Rank(0), Rank(1), Rank(1), Rank(3)}, std::vector<Order>(4)};
  EXPECT_EQ(activation_limit(uneven, TimesOf1F1B{1}), (std::vector<int>{4, 8, 1, 4}))
      << "a rank without stages has no use for it";
  EXPECT_EQ(activation_limit(uneven, TimesOf1F1B{0.6}), (std::vector<int>{2, 4, 1, 2}));
  EXPECT_EQ(activation_limit(uneven, TimesOf1F1B{1e300}), (std::vector<int>{8, 16, 1, 8})) << "no more than there are";
  const Schedule ten = generate("1f1b", {.ranks = 10, .micro_batches = 10});
  EXPECT_EQ(activation_limit(ten, TimesOf1F1B{1.1}), std::vector<int>(10, 10));
  EXPECT_EQ(activation_limit(generate("1f1b", {.ranks = 10, .micro_batches = 20}), TimesOf1F1B{1.1}),
            std::vector<int>(10, 11))
      << "however 1.1 is rounded";
}

std::string error_text(std::string_view name, const ScheduleShape& shape, const MemoryLimit& limit,
                       const StageCosts& costs = {}) {
  const Schedule schedule = generate(name, shape);
  return test::error_text<ConfigError>([&] { require_within_limit(schedule, limit, costs); });
}

TEST(MemoryLimit, is_positive_and_finite) {
  const Schedule any = generate("1f1b", {.ranks = 2, .micro_batches = 2});
  for (const double bad :
       {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_THROW(activation_limit(any, TimesOf1F1B{bad}), ConfigError) << bad;
}

TEST(MemoryLimit, names_the_smallest_sufficient_limit) {
  EXPECT_EQ(error_text("1f1b", {.ranks = 4, .micro_batches = 8}, TimesOf1F1B{1}), "[no error]");
  EXPECT_EQ(error_text("1f1b", {.ranks = 4, .micro_batches = 8}, TimesOf1F1B{0.6}),
            "a memory limit of 0.6 (times 1F1B's 4 micro-batches) lets rank 0 hold 2 live micro-batches, but schedule "
            "'1f1b' holds 4 there: set a limit of 1 or more, or take another schedule");
  EXPECT_EQ(error_text("interleaved", {.ranks = 3, .micro_batches = 6, .chunks = 2}, TimesOf1F1B{1}),
            "a memory limit of 1 (times 1F1B's 3 micro-batches) lets rank 0 hold 6 live micro-batches of its chunks, "
            "but schedule 'interleaved' holds 8 there: set a limit of 1.334 or more, or take another schedule");
}

TEST(MemoryLimit, the_named_limit_is_sufficient) {
  for (const ScheduleGenerator& generator : generators())
    for (const int m : {1, 3, 7, 8}) {
      const ScheduleShape shape{.ranks = 3, .micro_batches = m, .chunks = generator.default_chunks};
      const std::string text = error_text(generator.name, shape, TimesOf1F1B{0.01});
      const std::string ask = "set a limit of ";
      if (text == "[no error]") continue;  // holds one micro-batch, which every limit permits
      const double limit = std::stod(text.substr(text.find(ask) + ask.size()));
      EXPECT_EQ(error_text(generator.name, shape, TimesOf1F1B{limit}), "[no error]") << generator.name << " m " << m;
      EXPECT_NE(error_text(generator.name, shape, TimesOf1F1B{limit - 0.002}), "[no error]")
          << generator.name << " m " << m;
    }
}

TEST(MemoryLimit, is_parsed_with_and_without_a_unit) {
  EXPECT_EQ(parse_memory_limit("1.5"), MemoryLimit(TimesOf1F1B{1.5}));
  EXPECT_EQ(parse_memory_limit("2e0"), MemoryLimit(TimesOf1F1B{2}));
  EXPECT_EQ(parse_memory_limit("512MiB"), MemoryLimit(BytesPerRank{512 << 20}));
  EXPECT_EQ(parse_memory_limit("3e9B"), MemoryLimit(BytesPerRank{3'000'000'000}));
  EXPECT_EQ(parse_memory_limit("0.5kB"), MemoryLimit(BytesPerRank{500}));
  EXPECT_EQ(parse_memory_limit("9223372036854775807B"), MemoryLimit(BytesPerRank{9223372036854775807}));
  for (const char* bad : {"",           "-1",          "0",        "nan",  "inf",    "x",     "1.5x",
                          "-1GiB",      "-0B",         "0B",       "0.5B", "1 GiB",  "1GiB ", "1gib",
                          "1K",         "GiB",         "infB",     "nanB", "1e400B", "1e19B", "9223372036854775808B",
                          "8388608TiB", "16777217TiB", "1e308TiB", "0x10B"}) {
    const std::string complaint = test::error_text<ConfigError>([&] { parse_memory_limit(bad); });
    EXPECT_TRUE(complaint.starts_with(std::string("memory limit ") + bad + ": pass a positive multiple of 1F1B's"))
        << bad;
  }
}

TEST(MemoryLimit, in_text_is_the_limit) {
  for (const MemoryLimit& limit :
       {MemoryLimit(TimesOf1F1B{1.25}), MemoryLimit(BytesPerRank{1}), MemoryLimit(BytesPerRank{1536}),
        MemoryLimit(BytesPerRank{1000}), MemoryLimit(BytesPerRank{std::int64_t{3} << 40})})
    EXPECT_EQ(parse_memory_limit(to_string(limit)), limit) << to_string(limit);
  EXPECT_EQ(to_string(MemoryLimit(BytesPerRank{1536})), "1536B");
  EXPECT_EQ(to_string(MemoryLimit(BytesPerRank{3 << 20})), "3MiB");
}

TEST(MemoryLimit, in_bytes_needs_the_bytes_of_activations) {
  const Schedule schedule = generate("1f1b", {.ranks = 2, .micro_batches = 4});
  EXPECT_EQ(test::error_text<ConfigError>([&] { require_within_limit(schedule, BytesPerRank{1 << 20}); }),
            "a memory limit of 1MiB, but the bytes of a micro-batch's activations are not known: pass them per stage "
            "(--activation-bytes, StageCosts::activation_bytes), or a limit without a unit, which is a multiple of "
            "1F1B's activations");
}

StageCosts with_bytes(std::vector<double> bytes, double weight_share = 1) {
  StageCosts costs;
  costs.activation_bytes = std::move(bytes);
  costs.weight_share = weight_share;
  return costs;
}

TEST(MemoryLimit, in_bytes_counts_each_stage_by_its_size) {
  const ScheduleShape shape{.ranks = 2, .micro_batches = 4};
  // Rank 0 holds two micro-batches of 300 bytes, rank 1 one of 100.
  const Schedule one_f_one_b = generate("1f1b", shape);
  EXPECT_EQ(peak_activation_bytes(one_f_one_b, with_bytes({300, 100})), (std::vector<double>{600, 100}));
  EXPECT_EQ(peak_activation_bytes(one_f_one_b, with_bytes({300})), (std::vector<double>{600, 300}));
  EXPECT_EQ(activation_limit(one_f_one_b, BytesPerRank{650}, with_bytes({300, 100})), (std::vector<int>{2, 4}));
  EXPECT_EQ(activation_limit(one_f_one_b, BytesPerRank{99}, with_bytes({300, 100})), (std::vector<int>{0, 0}));
  EXPECT_EQ(activation_limit(one_f_one_b, BytesPerRank{99}, with_bytes({0})), (std::vector<int>{4, 4}));
  EXPECT_EQ(peak_activation_bytes(generate("forward-only", shape), with_bytes({300})), (std::vector<double>{0, 0}));
  // The weight share of a micro-batch counts from I to W, as in a simulation.
  const Schedule zb_h1 = generate("zb-h1", shape);
  for (const double share : {0.5, 1.0})
    EXPECT_EQ(peak_activation_bytes(zb_h1, with_bytes({300}, share))[1],
              300 * simulate(zb_h1, with_bytes({300}, share)).peak_activations[1]);
  EXPECT_EQ(error_text("1f1b", shape, BytesPerRank{600}, with_bytes({300, 100})), "[no error]");
  EXPECT_EQ(
      error_text("1f1b", shape, BytesPerRank{599}, with_bytes({300, 100})),
      "a memory limit of 599B per rank is less than the 600B of activations that schedule '1f1b' holds on rank 0: "
      "set a limit of 600B or more, or take another schedule");
}

TEST(MemoryLimit, in_bytes_that_is_named_is_sufficient) {
  for (const ScheduleGenerator& generator : generators()) {
    const ScheduleShape shape{.ranks = 3, .micro_batches = 7, .chunks = generator.default_chunks};
    if (generate(generator.name, shape).is_forward_only()) continue;  // it holds nothing
    std::vector<double> bytes;
    for (int stage = 0; stage < shape.ranks * shape.chunks; ++stage) bytes.push_back(100 + 7 * stage);
    const StageCosts costs = with_bytes(bytes, 0.37);
    const Schedule schedule = generate(generator.name, shape);
    const MemoryLimit needed = needed_memory_limit(schedule, BytesPerRank{1}, costs);
    EXPECT_TRUE(is_within_limit(schedule, needed, costs)) << generator.name;
    EXPECT_FALSE(is_within_limit(schedule, BytesPerRank{std::get<BytesPerRank>(needed).bytes - 1}, costs));
  }
}

TEST(MemoryLimit, fuse_limit_is_enough_for_fused_weight_gradients) {
  const Schedule schedule = generate("1f1b", {.ranks = 2, .micro_batches = 8});
  const StageCosts costs = with_bytes({300, 100});
  for (const std::int64_t bytes : {600, 1000, 5000}) {
    const BytesPerRank limit{bytes};
    const Schedule fused = fuse_w(schedule, {.group = 0, .activation_limit = fuse_limit(schedule, limit, costs)});
    EXPECT_TRUE(is_within_limit(fused, limit, costs)) << bytes;
  }
  EXPECT_TRUE(test::error_text<ConfigError>([&] {
                fuse_limit(schedule, BytesPerRank{599}, costs);
              }).ends_with("set a limit of 600B or more, or take another schedule"));
}

}  // namespace
}  // namespace penstock::memory_limit_test
