#include "penstock/schedule/weight_gradients.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/timeline_grid.h"
#include "penstock/schedule/validate.h"
#include "tests/base/error_text.h"
#include "tests/schedule/random_schedule.h"

namespace penstock::fuse_test {
namespace {

FuseOptions within(std::vector<int> limit) { return {.group = 0, .activation_limit = std::move(limit)}; }

/// A schedule of two ranks with the stages 0 and 3, and 1 and 2.
Schedule v_shape(int micro_batches, const std::string& rank_0, const std::string& rank_1) {
  return read_schedule(say("penstock schedule 1\nname v\nranks 2\nstages 4\nmicro_batches ", micro_batches,
                           "\nrank_of_stage 0 1 1 0\nrank 0: ", rank_0, "\nrank 1: ", rank_1, "\n"));
}

/// The text form of `schedule` without its header.
std::string lists(const Schedule& schedule) {
  const std::string text = write_schedule(schedule);
  return text.substr(text.find("rank 0:"));
}

TEST(Fuse, fuses_the_whole_step) {
  EXPECT_EQ(timeline_grid(fuse_w(generate("1f1b", {.ranks = 2, .micro_batches = 4}))),
            "rank 0 |  0F0   0F1    .    0I0   0F2   0I1   0F3   0I2    .    0I3  0W0-3\n"
            "rank 1 |   .    1F0   1I0   1F1   1I1   1F2   1I2   1F3   1I3  1W0-3   .\n");
}

TEST(Fuse, a_group_is_placed_after_its_last_I) {
  EXPECT_EQ(timeline_grid(fuse_w(generate("1f1b", {.ranks = 2, .micro_batches = 5}), {.group = 2})),
            "rank 0 |  0F0   0F1    .    0I0   0F2   0I1  0W0-1  0F3   0I2   0F4   0I3  0W2-3   .    0I4   0W4\n"
            "rank 1 |   .    1F0   1I0   1F1   1I1  1W0-1  1F2   1I2   1F3   1I3  1W2-3  1F4   1I4   1W4    .\n");
}

TEST(Fuse, groups_of_one_split_B) {
  const Schedule split = fuse_w(generate("gpipe", {.ranks = 1, .micro_batches = 2}), {.group = 1});
  EXPECT_EQ(lists(split), "rank 0: 0F0 0F1 0I0 0W0 0I1 0W1\n");
  EXPECT_EQ(fuse_w(split, {.group = 1}), split);
}

TEST(Fuse, groups_larger_than_the_step_cover_the_whole_step) {
  const Schedule schedule = generate("1f1b", {.ranks = 3, .micro_batches = 4});
  EXPECT_EQ(fuse_w(schedule, {.group = 4}), fuse_w(schedule));
  EXPECT_EQ(fuse_w(schedule, {.group = 9}), fuse_w(schedule));
}

TEST(Fuse, groups_are_as_large_as_the_limit_permits) {
  const Schedule gpipe = generate("gpipe", {.ranks = 1, .micro_batches = 4});
  EXPECT_EQ(lists(fuse_w(gpipe, within({4}))), "rank 0: 0F0 0F1 0F2 0F3 0I0 0I1 0I2 0I3 0W0-3\n");
  const Schedule one_by_one = generate("sequential", {.ranks = 1, .micro_batches = 5});
  EXPECT_EQ(lists(fuse_w(one_by_one, within({2}))),
            "rank 0: 0F0 0I0 0F1 0I1 0W0-1 0F2 0I2 0F3 0I3 0W2-3 0F4 0I4 0W4\n");
  EXPECT_EQ(fuse_w(one_by_one, within({1})), fuse_w(one_by_one, {.group = 1}));
}

TEST(Fuse, the_smallest_sufficient_limit_is_named) {
  const Schedule schedule = generate("1f1b", {.ranks = 3, .micro_batches = 8});
  EXPECT_EQ(smallest_fuse_limit(schedule), (std::vector<int>{3, 2, 1}));
  EXPECT_TRUE(validate(fuse_w(schedule, within({3, 2, 1}))).ok);
  EXPECT_EQ(test::error_text<ScheduleError>([&] {
              fuse_w(schedule, within({3, 1, 1}));
            }),
            "rank 1 may hold 1 live micro-batches, which this schedule exceeds even with single W's: the smallest "
            "limits that work are 3 2 1, by rank");
}

TEST(Fuse, fused_Ws_of_a_rank_follow_the_order_of_the_last_Is) {
  const Schedule v = v_shape(2, "0F0 0F1 3F0 3F1 3B0 3B1 0B0 0B1", "1F0 1F1 2F0 2F1 2B0 1B0 2B1 1B1");
  EXPECT_EQ(lists(fuse_w(v)),
            "rank 0: 0F0 0F1 3F0 3F1 3I0 3I1 0I0 0I1 3W0-1 0W0-1\n"
            "rank 1: 1F0 1F1 2F0 2F1 2I0 1I0 2I1 1I1 2W0-1 1W0-1\n");
}

TEST(Fuse, overlap_pairs_are_preserved) {
  const Schedule v =
      v_shape(2, "0F0 3F0 (0F1;3B0)OVERLAP_F_B 3F1 0B0 3B1 0B1", "1F0 2F0 1F1 (2F1;2B0)OVERLAP_F_B 1B0 2B1 1B1");
  const Schedule fused = fuse_w(v);
  EXPECT_EQ(lists(fused),
            "rank 0: 0F0 3F0 (0F1;3I0)OVERLAP_F_B 3F1 0I0 3I1 0I1 3W0-1 0W0-1\n"
            "rank 1: 1F0 2F0 1F1 (2F1;2I0)OVERLAP_F_B 1I0 2I1 1I1 2W0-1 1W0-1\n");
  EXPECT_TRUE(validate(lower(fused)).ok);
}

TEST(Fuse, Ws_ascend_even_if_Is_do_not) {
  const Schedule backwards = read_schedule(
      "penstock schedule 1\nname\nranks 1\nstages 1\nmicro_batches 3\n"
      "rank_of_stage 0\nrank 0: 0F0 0F1 0F2 0I2 0I1 0I0 0W0 0W1 0W2\n");
  EXPECT_EQ(lists(fuse_w(backwards)), "rank 0: 0F0 0F1 0F2 0I2 0I1 0I0 0W0-2\n");
  EXPECT_EQ(lists(fuse_w(backwards, {.group = 2})), "rank 0: 0F0 0F1 0F2 0I2 0I1 0I0 0W0-1 0W2\n");
  EXPECT_EQ(smallest_fuse_limit(backwards), std::vector<int>{3});
}

TEST(Fuse, forward_only_schedules_are_unchanged) {
  const Schedule forward_only = generate("forward-only", {.ranks = 2, .micro_batches = 3});
  EXPECT_EQ(fuse_w(forward_only), forward_only);
  EXPECT_EQ(smallest_fuse_limit(forward_only), (std::vector<int>{1, 1}));
}

TEST(Fuse, refuses_invalid_schedules_and_options) {
  const Schedule schedule = generate("gpipe", {.ranks = 2, .micro_batches = 2});
  EXPECT_THROW(fuse_w(lower(schedule)), ScheduleError);
  EXPECT_THROW(fuse_w(schedule, {.group = -1}), ConfigError);
  EXPECT_THROW(fuse_w(schedule, within({2})), ConfigError);
  EXPECT_THROW(fuse_w(schedule, {.group = 2, .activation_limit = std::vector<int>{2, 2}}), ConfigError);
  Schedule incomplete = schedule;
  incomplete.orders[1].pop_back();
  EXPECT_EQ(test::error_text<ScheduleError>([&] { fuse_w(incomplete); }),
            "this schedule cannot be fused: 1B1 is missing on rank 1");
}

TEST(WeightGradients, are_named) {
  for (const char* name : {"stream", "auto", "fused", "grouped"})
    EXPECT_STREQ(to_string(weight_gradients_named(name).value()), name);
  EXPECT_EQ(weight_gradients_named("auto"), WeightGradients::automatic);
  for (const char* name : {"", "Fused", "automatic"}) EXPECT_FALSE(weight_gradients_named(name)) << name;
}

TEST(WeightGradients, of_a_schedule) {
  for (const char* name : {"1f1b", "zb-h1", "interleaved"}) {
    const int chunks = find_generator(name).default_chunks;
    const Schedule schedule = generate(name, {.ranks = 2, .micro_batches = 4, .chunks = chunks});
    EXPECT_EQ(weight_gradients_of(schedule), WeightGradients::stream) << name;
    EXPECT_EQ(weight_gradients_of(fuse_w(schedule)), WeightGradients::fused) << name;
    EXPECT_EQ(weight_gradients_of(fuse_w(schedule, {.group = 3})), WeightGradients::grouped) << name;
    EXPECT_EQ(weight_gradients_of(fuse_w(schedule, {.group = 1})), WeightGradients::stream) << name;
  }
  EXPECT_EQ(weight_gradients_of(generate("forward-only", {.ranks = 2, .micro_batches = 4})), WeightGradients::stream);
}

/// Per stage, the micro-batches in the order in which their weight gradients are accumulated.
std::vector<std::vector<int>> accumulation(const Schedule& schedule) {
  std::vector<std::vector<int>> order(schedule.rank_of_stage.size());
  for (const Order& instructions : schedule.orders)
    for (const Instruction& instruction : instructions)
      if (instruction.op() == Op::backward || instruction.op() == Op::weight_grad)
        for (MicroBatch i = instruction.first(); i <= instruction.last(); i = i.next())
          order[instruction.stage().index()].push_back(i.value());
  return order;
}

/// Per rank, its F's and I's, with B counted as I.
std::vector<std::vector<std::string>> rest_of(const Schedule& schedule) {
  std::vector<std::vector<std::string>> rest;
  for (const Order& instructions : schedule.orders) {
    rest.emplace_back();
    for (const Instruction& instruction : instructions)
      if (instruction.op() != Op::weight_grad)
        rest.back().push_back(say(instruction.op() == Op::forward ? "F" : "I", instruction.stage().value(), " ",
                                  instruction.micro_batch().value(), instruction.overlaps_next() ? "+" : ""));
  }
  return rest;
}

int instructions_of(const Schedule& schedule, Op op) {
  int count = 0;
  for (const Order& order : schedule.orders)
    for (const Instruction& instruction : order) count += instruction.op() == op;
  return count;
}

TEST(Fuse, a_valid_schedule_is_valid_after_fusing) {
  EXPECT_TRUE(rc::check("fuse_w(x) is validated fit", [] {
    const int stages = *rc::gen::inRange(1, 6);
    const Links links = any_links(stages);
    Schedule schedule = working_schedule(stages, links);
    overlap_some(schedule);
    const int m = schedule.micro_batches;
    const std::vector<int> smallest = smallest_fuse_limit(schedule);
    FuseOptions options;
    if (*rc::gen::arbitrary<bool>()) {
      options.activation_limit = smallest;
      for (int& limit : *options.activation_limit) limit += *rc::gen::inRange(0, 4);
    } else {
      options.group = *rc::gen::inRange(0, m + 2);
    }

    const Schedule fused = fuse_w(schedule, options);
    RC_LOG() << write_schedule(schedule) << write_schedule(fused);
    const Validation result = validate(fused, {.links = links, .activation_bound = options.activation_limit});
    RC_LOG() << result.reason;
    RC_ASSERT(result.ok);
    RC_ASSERT(validate(lower(fused, links), {.links = links, .activation_bound = options.activation_limit}).ok);
    RC_ASSERT(accumulation(fused) == accumulation(schedule));
    RC_ASSERT(rest_of(fused) == rest_of(schedule));
    RC_ASSERT(fuse_w(fused, options) == fused);
    RC_ASSERT(instructions_of(fused, Op::backward) == 0);

    if (!options.activation_limit) {
      const int group = options.group == 0 ? m : std::min(options.group, m);
      RC_ASSERT(instructions_of(fused, Op::weight_grad) == stages * ((m + group - 1) / group));
    }
    // No activations are freed before the last I, and all F's have run by then.
    const Validation whole = validate(fuse_w(schedule), {.links = links, .activation_bound = {}});
    for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
      RC_ASSERT(whole.peak_activations[rank] ==
                m * static_cast<int>(std::count(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end(),
                                                Rank(static_cast<int>(rank)))));
    RC_ASSERT(fuse_w(schedule, within(whole.peak_activations)) == fuse_w(schedule));

    // The smallest limits are sufficient and reached, and none can be decreased.
    RC_ASSERT(validate(fuse_w(schedule, within(smallest)), {.links = links, .activation_bound = {}}).peak_activations ==
              smallest);
    for (std::size_t rank = 0; rank < smallest.size(); ++rank) {
      std::vector<int> less = smallest;
      if (--less[rank] < 0) continue;
      RC_ASSERT_THROWS_AS(fuse_w(schedule, within(less)), ScheduleError);
    }
  }));
}

}  // namespace
}  // namespace penstock::fuse_test
