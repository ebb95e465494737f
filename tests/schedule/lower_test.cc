#include "penstock/schedule/lower.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/validate.h"
#include "tests/schedule/random_schedule.h"

namespace penstock::lower_test {
namespace {

/// The text form of `schedule` without its header.
std::string lists(const Schedule& schedule) {
  const std::string text = write_schedule(schedule);
  return text.substr(text.find("rank 0:"));
}

Schedule two_ranks(const char* first, const char* second) {
  const std::string head = "penstock schedule 1\nname\nranks 2\nstages 2\nmicro_batches 1\nrank_of_stage 0 1\n";
  return read_schedule(head + "rank 0: " + first + "\nrank 1: " + second + "\n");
}

TEST(Lower, puts_receives_before_consumers_and_sends_after_producers) {
  EXPECT_EQ(lists(lower(generate("gpipe", {.ranks = 3, .micro_batches = 1}))),
            "rank 0: 0F0 0SEND_F0 0RECV_B0 0B0 0STEP\n"
            "rank 1: 1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0 1STEP\n"
            "rank 2: 2RECV_F0 2F0 2B0 2SEND_B0 2STEP\n");
}

TEST(Lower, sends_the_gradient_of_a_split_backward_before_W) {
  EXPECT_EQ(lists(lower(two_ranks("0F0 0I0 0W0", "1F0 1I0 1W0"))),
            "rank 0: 0F0 0SEND_F0 0RECV_B0 0I0 0W0 0STEP\n"
            "rank 1: 1RECV_F0 1F0 1I0 1SEND_B0 1W0 1STEP\n");
}

TEST(Lower, skip_links_are_direct_and_integers_have_no_gradient) {
  const Links links = {{StageId(0), StageId(1)}, {StageId(0), StageId(2)}, {StageId(1), StageId(2), false}};
  EXPECT_EQ(lists(lower(generate("gpipe", {.ranks = 3, .micro_batches = 1}), links)),
            "rank 0: 0F0 0SEND_F0 0SEND_F0>2 0RECV_B0 0RECV_B0<2 0B0 0STEP\n"
            "rank 1: 1RECV_F0 1F0 1SEND_F0 1B0 1SEND_B0 1STEP\n"
            "rank 2: 2RECV_F0<0 2RECV_F0 2F0 2B0 2SEND_B0>0 2STEP\n");
}

TEST(Lower, stages_of_one_rank_exchange_no_messages) {
  const Schedule v = read_schedule(
      "penstock schedule 1\nname v\nranks 2\nstages 4\nmicro_batches 1\n"
      "rank_of_stage 0 1 1 0\nrank 0: 0F0 3F0 3B0 0B0\nrank 1: 1F0 2F0 2B0 1B0\n");
  EXPECT_EQ(lists(lower(v)),
            "rank 0: 0F0 0SEND_F0 3RECV_F0 3F0 3B0 3SEND_B0 3STEP 0RECV_B0 0B0 0STEP\n"
            "rank 1: 1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2B0 2STEP 1B0 1SEND_B0 1STEP\n");
}

TEST(Lower, step_follows_the_last_gradient_of_the_stage) {
  const Schedule split = read_schedule(
      "penstock schedule 1\nname split\nranks 1\nstages 2\nmicro_batches 3\n"
      "rank_of_stage 0 0\n"
      "rank 0: 0F0 1F0 1I0 0I0 0F1 1F1 1I1 0I1 0F2 1F2 1I2 1W0-2 0I2 0W0-1 0W2\n");
  EXPECT_EQ(lists(lower(split)),
            "rank 0: 0F0 1F0 1I0 0I0 0F1 1F1 1I1 0I1 0F2 1F2 1I2 1W0-2 1STEP 0I2 0W0-1 0W2 0STEP\n");
}

TEST(Lower, reduce_and_norm_are_at_the_end) {
  const Schedule chunks = read_schedule(
      "penstock schedule 1\nname chunks\nranks 1\nstages 2\nmicro_batches 1\n"
      "rank_of_stage 0 0\nrank 0: 0F0 1F0 1B0 0B0\n");
  EXPECT_EQ(lists(lower(chunks, LowerOptions{.reduce = true})),
            "rank 0: 0F0 1F0 1B0 0B0 0REDUCE 1REDUCE 0STEP 1STEP\n");
  EXPECT_EQ(lists(lower(chunks, LowerOptions{.norm = true})), "rank 0: 0F0 1F0 1B0 0B0 0NORM 1NORM 0STEP 1STEP\n");
}

TEST(Lower, adds_the_requested_step_wide_instructions) {
  const LowerOptions all{.reduce = true, .norm = true, .step = true};
  EXPECT_EQ(lists(lower(generate("gpipe", {.ranks = 1, .micro_batches = 1}), all)),
            "rank 0: 0F0 0B0 0REDUCE 0NORM 0STEP\n");
  EXPECT_EQ(lists(lower(generate("gpipe", {.ranks = 1, .micro_batches = 1}), LowerOptions{.step = false})),
            "rank 0: 0F0 0B0\n");
  EXPECT_EQ(lists(lower(generate("forward-only", {.ranks = 1, .micro_batches = 1}), all)), "rank 0: 0F0\n");
}

TEST(Lower, keeps_overlap_pairs) {
  Schedule pair = read_schedule(
      "penstock schedule 1\nname\nranks 2\nstages 2\nmicro_batches 2\nrank_of_stage 0 1\n"
      "rank 0: 0F0 (0F1;0B0)OVERLAP_F_B 0B1\nrank 1: 1F0 1B0 1F1 1B1\n");
  const Schedule lowered = lower(pair);
  EXPECT_EQ(lists(lowered).substr(0, lists(lowered).find('\n')),
            "rank 0: 0F0 0SEND_F0 (0F1;0SEND_F1;0RECV_B0;0B0)OVERLAP_F_B 0RECV_B1 0B1 0STEP");
  EXPECT_EQ(read_schedule(write_schedule(lowered)), lowered);
  EXPECT_EQ(strip(lowered), pair);
}

TEST(Lower, refuses_lowered_and_invalid_schedules) {
  const Schedule plain = generate("gpipe", {.ranks = 2, .micro_batches = 1});
  EXPECT_THROW(lower(lower(plain)), ScheduleError);
  EXPECT_THROW(lower(plain, {{StageId(0), StageId(2)}}), ScheduleError);
  Schedule astray = plain;
  astray.orders[0][0] = parse_instruction("7F0");
  EXPECT_THROW(lower(astray), ScheduleError);
  astray = plain;
  astray.rank_of_stage[1] = Rank(7);
  EXPECT_THROW(lower(astray), ScheduleError);
}

TEST(Lower, strip_undoes_it_and_the_result_is_valid) {
  EXPECT_TRUE(rc::check("strip(lower(x)) == x", [] {
    const int stages = *rc::gen::inRange(1, 7);
    const Links links = any_links(stages);
    const Schedule schedule = working_schedule(stages, links);
    const Schedule lowered = lower(schedule, links, {.reduce = true, .norm = true, .step = true});
    RC_ASSERT(strip(lowered) == schedule);
    const ValidateOptions options{.links = links, .activation_bound = {}};
    RC_ASSERT(validate(schedule, options).reason == "");
    RC_ASSERT(validate(lowered, options).reason == "");
  }));
}

}  // namespace
}  // namespace penstock::lower_test
