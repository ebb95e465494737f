#include "penstock/schedule/validate.h"

#include <gtest/gtest.h>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/text.h"
#include "tests/base/error_text.h"

namespace penstock::validate_test {
namespace {

/// A schedule of two stages on two ranks with two micro-batches.
Schedule lists(const std::string& first, const std::string& second) {
  return read_schedule("penstock schedule 1\nname\nranks 2\nstages 2\nmicro_batches 2\nrank_of_stage 0 1\nrank 0:" +
                       first + "\nrank 1:" + second + "\n");
}

const std::string good = " 1F0 1B0 1F1 1B1";

struct Finding {
  Schedule schedule;
  const char* reason;
  std::optional<GridCell> cell;
};

void expect(const Finding& finding, const ValidateOptions& options = {}) {
  const Validation result = validate(finding.schedule, options);
  EXPECT_FALSE(result.ok);
  EXPECT_EQ(result.reason, finding.reason);
  ASSERT_EQ(result.cell.has_value(), finding.cell.has_value()) << result.reason;
  if (!result.cell) return;
  EXPECT_EQ(result.cell->rank, finding.cell->rank) << result.reason;
  EXPECT_EQ(result.cell->position, finding.cell->position) << result.reason;
}

GridCell cell(int rank, int position) { return {Rank(rank), position}; }

TEST(Validator, accepts_a_valid_schedule_and_counts_activations) {
  const Validation result = validate(lists(" 0F0 0F1 0B0 0B1", good));
  EXPECT_TRUE(result.ok);
  EXPECT_EQ(result.reason, "");
  EXPECT_EQ(result.peak_activations, (std::vector<int>{2, 1}));
  EXPECT_NO_THROW(result.require_ok({}));
}

TEST(Validator, a_micro_batch_is_live_until_W_if_B_is_split) {
  EXPECT_EQ(validate(lists(" 0F0 0F1 0I0 0I1 0W0-1", " 1F0 1I0 1F1 1I1 1W0 1W1")).peak_activations,
            (std::vector<int>{2, 2}));
}

TEST(Validator, a_forward_only_schedule_holds_one_micro_batch) {
  EXPECT_EQ(validate(generate("forward-only", {.ranks = 2, .micro_batches = 3})).peak_activations,
            (std::vector<int>{1, 1}));
}

TEST(Validator, refuses_incomplete_schedules) {
  expect({lists(" 0F0 0B0 0B1", good), "0F1 is missing on rank 0", cell(0, 3)});
  expect({lists(" 0F0 0F1 0B0", good), "0B1 is missing on rank 0", cell(0, 3)});
  expect({lists(" 0F0 0F1 0B0 0I1", good), "0W1 is missing on rank 0", cell(0, 4)});
  expect({lists(" 0F0 0F1 0B0 0W1", good), "0I1 is missing on rank 0", cell(0, 4)});
  expect({lists(" 0F0 0F1", good), "0B0 is missing on rank 0", cell(0, 2)});  // "or nowhere": rank 1 has them
  expect({lists(" 0F0 0F1 0B0 0B1 0B1", good), "0B1 occurs twice", cell(0, 4)});
  expect({lists(" 0F0 0F1 0F1 0B0 0B1", good), "0F1 occurs twice", cell(0, 2)});
  expect({lists(" 0F0 0F1 0B0 0I1 0W0-1", good),
          "0W0-1: B of stage 0, micro-batch 0 is both whole and split (B = I + W)", cell(0, 4)});
  expect({lists(" 0F0 0F1 0I0 0W0 0B1 0B0", good),
          "0B0: B of stage 0, micro-batch 0 is both whole and split (B = I + W)", cell(0, 5)});
  expect({lists(" 0F0 0F1 0I0 0I1 0W0 0W0-1", good), "0W0-1 repeats the W of micro-batch 0", cell(0, 5)});
  expect({lists(" 0F0 0F1 0B0 0B1 1F0", good), "1F0 is on rank 0, but stage 1 belongs to rank 1", cell(0, 4)});
}

TEST(Validator, step_wide_instructions_occur_once_and_need_gradients) {
  expect({lists(" 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1 0STEP 0STEP",
                " 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1"),
          "0STEP occurs twice", cell(0, 9)});
  expect({lists(" 0F0 0SEND_F0 0F1 0SEND_F1 0STEP", " 1RECV_F0 1F0 1RECV_F1 1F1"),
          "0STEP has no gradients to work on: there is no B", cell(0, 4)});
}

TEST(Validator, refuses_instructions_out_of_range) {
  Schedule schedule = lists(" 0F0 0F1 0B0 0B1", good);
  schedule.orders[1][2] = parse_instruction("2F1");
  expect({schedule, "2F1 names stage 2, but the stages are 0..1", cell(1, 2)});
  schedule.orders[1][2] = parse_instruction("1F2");
  expect({schedule, "1F2 names a micro-batch that does not exist: they are 0..1", cell(1, 2)});
  schedule.orders[1][2] = Instruction::message(Op::send_forward, StageId(1), StageId(0), MicroBatch(0));
  expect({schedule, "1SEND_F0>0 has no stage at its other end: stage 1 of 2", cell(1, 2)});
  schedule.rank_of_stage[1] = Rank(2);
  expect({schedule, "stage 1 is given to rank 2, but there are 2 ranks", {}});
  schedule.micro_batches = 0;
  expect({schedule, "m = 0: at least 1 is needed", {}});
  expect({Schedule{"", 1, {}, {}}, "there are 0 stages: 1..65536 are possible", {}});
}

TEST(Validator, refuses_descending_micro_batches) {
  expect({lists(" 0F1 0F0 0B0 0B1", good),
          "0F0 comes after micro-batch 1: F must run in ascending order on every stage", cell(0, 1)});
  expect({lists(" 0F0 0F1 0B1 0B0", " 1F0 1F1 1B0 1B1"),
          "0B0 comes after micro-batch 1: weight gradients must accumulate in ascending order on every stage",
          cell(0, 3)});
  expect({lists(" 0F0 0F1 0I1 0I0 0W1 0W0", " 1F0 1F1 1B0 1B1"),
          "0W0 comes after micro-batch 1: weight gradients must accumulate in ascending order on every stage",
          cell(0, 5)});
  EXPECT_TRUE(validate(lists(" 0F0 0F1 0I1 0I0 0W0 0W1", " 1F0 1F1 1B0 1B1")).ok);  // I has no order of its own
}

TEST(Validator, refuses_unpaired_messages) {
  const std::string receiver = " 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1";
  const std::string sender = " 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1";
  EXPECT_EQ(validate(lists(sender, receiver)).reason, "");
  expect({lists(" 0F0 0SEND_F0 0F1 0RECV_B0 0B0 0RECV_B1 0B1", receiver),
          "0SEND_F1 is missing on rank 0: link 0>1 needs it", cell(0, 7)});
  expect({lists(sender, " 1RECV_F0 1F0 1F1 1B0 1SEND_B0 1B1 1SEND_B1"),
          "1RECV_F1 is missing on rank 1: link 0>1 needs it", cell(1, 7)});
  expect({lists(sender, " 1RECV_F0 1F0 1RECV_F1 1F1 1B0 1B1 1SEND_B1"),
          "1SEND_B0 is missing on rank 1: link 0>1 needs it", cell(1, 7)});
  expect({lists(sender, receiver + " 1SEND_B0"), "1SEND_B0 occurs twice", cell(1, 8)});
  // A STEP makes the schedule lowered, so it needs messages.
  expect({lists(" 0F0 0F1 0B0 0B1 0STEP", good), "link 0>1 from rank 0 to rank 1 has 0 SEND_F for 2 micro-batches",
          cell(0, 5)});
}

TEST(Validator, messages_must_match_the_links_of_the_model) {
  const Schedule lowered = lower(generate("gpipe", {.ranks = 3, .micro_batches = 1}));
  const auto along = [](Links links) { return ValidateOptions{.links = std::move(links), .activation_bound = {}}; };
  Links skips = chain(3);
  skips.push_back({StageId(0), StageId(2)});
  expect({lowered, "link 0>2 from rank 0 to rank 2 has 0 SEND_F for 1 micro-batches", cell(0, 5)}, along(skips));
  expect({lowered, "1SEND_F0 goes along 1>2, which is not a link", cell(1, 2)}, along({{StageId(0), StageId(1)}}));
  expect({lowered, "1RECV_B0 carries a gradient along 1>2, which has none", cell(1, 3)},
         along({{StageId(0), StageId(1)}, {StageId(1), StageId(2), false}}));
  expect({lowered, "link 2>1 does not go forward: values go from an earlier stage to a later one", {}},
         along({{StageId(2), StageId(1)}}));

  Schedule v =
      lower(read_schedule("penstock schedule 1\nname\nranks 1\nstages 2\nmicro_batches 1\nrank_of_stage 0 0\n"
                          "rank 0: 0F0 1F0 1B0 0B0\n"));
  v.orders[0].insert(v.orders[0].begin() + 1, parse_instruction("0SEND_F0"));
  expect(
      {v, "0SEND_F0 is a message within rank 0: stages 0 and 1 are on the same rank and need no message", cell(0, 1)});
}

TEST(Validator, refuses_deadlocks) {
  expect({lists(" 0F0 0B0 0F1 0B1", " 1F0 1F1 1B0 1B1"),
          "deadlock: rank 0 is at 0B0, which needs 1B0 of rank 1, which is at 1F1, which needs 0F1 of rank 0, which is "
          "at 0B0",
          cell(0, 1)});
  expect({lists(" 0F0 0F1 0B0 0B1", " 1B0 1F0 1F1 1B1"),
          "deadlock: rank 0 is at 0B0, which needs 1B0 of rank 1, which is at 1B0, which needs 1F0, later on that rank",
          cell(1, 0)});
  // A message is sent when its sender reaches the SEND, and arrives only after its RECV was posted.
  expect({lists(" 0F0 0F1 0SEND_F0 0SEND_F1 0RECV_B0 0B0 0RECV_B1 0B1",
                " 1F0 1RECV_F0 1RECV_F1 1F1 1B0 1SEND_B0 1B1 1SEND_B1"),
          "deadlock: rank 0 is at 0B0, which needs 1SEND_B0 of rank 1, which is at 1F0, which needs 1RECV_F0, later on "
          "that rank",
          cell(1, 0)});
}

TEST(Validator, a_receive_does_not_block_its_rank) {
  EXPECT_EQ(validate(lists(" 0F0 0SEND_F0 0RECV_B0 0RECV_B1 0F1 0SEND_F1 0B0 0B1",
                           " 1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 1F1 1B1 1SEND_B1"))
                .reason,
            "");
}

ValidateOptions with_posts(int posts) { return {.links = {}, .activation_bound = {}, .posts = posts}; }

TEST(Validator, refuses_a_deadlock_of_full_channels) {
  const Schedule schedule = lower(generate("looped-bfs", {.ranks = 2, .micro_batches = 6, .chunks = 2}));
  EXPECT_TRUE(validate(schedule).ok);
  EXPECT_TRUE(validate(schedule, with_posts(2)).ok);
  expect({schedule,
          "deadlock with 1 post per channel: rank 0 is at 0SEND_F5 (the forward channel of ranks 0>1 is full), which "
          "needs 1F3 of rank 1, which is at 1SEND_F2 (the forward channel of ranks 1>0 is full), which needs 2F0 of "
          "rank 0, which is at 0SEND_F5 (the forward channel of ranks 0>1 is full)",
          cell(0, 11)},
         with_posts(1));
}

TEST(Validator, refuses_posts_that_the_order_of_the_receiver_exceeds) {
  const Schedule schedule = lists(" 0F0 0F1 0SEND_F1 0SEND_F0 0RECV_B0 0B0 0RECV_B1 0B1",
                                  " 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1");
  EXPECT_TRUE(validate(schedule).ok);
  EXPECT_TRUE(validate(schedule, with_posts(2)).ok);
  expect(
      {schedule,
       "1F0 on rank 1 needs 1RECV_F0, message 1 of the forward channel of ranks 0>1, after 0 others: with 1 post its "
       "receive is not posted yet, the channel needs 2",
       cell(1, 1)},
      with_posts(1));
}

TEST(Validator, posts_are_at_least_1_and_of_messages) {
  const Schedule schedule = generate("1f1b", {.ranks = 2, .micro_batches = 2});
  expect({lower(schedule), "posts = 0: at least 1 per channel is needed", {}}, with_posts(0));
  expect({schedule, "posts = 1, but the schedule has no messages: pass the result of lower()", {}}, with_posts(1));
  EXPECT_TRUE(validate(generate("1f1b", {.ranks = 1, .micro_batches = 2}), with_posts(1)).ok);
}

TEST(Validator, refuses_more_activations_than_the_bound) {
  const Schedule schedule = generate("1f1b", {.ranks = 3, .micro_batches = 4});
  const auto bound = [](std::vector<int> ranks) { return ValidateOptions{.links = {}, .activation_bound = ranks}; };
  EXPECT_TRUE(validate(schedule, bound({3, 2, 1})).ok);
  expect({schedule, "1F1 makes rank 1 hold 2 live micro-batches, its bound is 1", cell(1, 1)}, bound({3, 1, 1}));
  expect({schedule, "the activation bound is given for 2 ranks, there are 3", {}}, bound({3, 2}));
}

TEST(Validator, refuses_broken_overlap_pairs) {
  Schedule schedule = lists(" 0F0 0F1 0B0 0B1", good);
  Order& order = schedule.orders[0];
  order[1] = order[1].overlapping_next();
  EXPECT_TRUE(validate(schedule).ok);
  order[0] = order[0].overlapping_next();
  expect({schedule, "0F0 overlaps with 0F1, which begins another pair", cell(0, 0)});
  order = {order[0], parse_instruction("0F1"), order[2], order[3]};
  expect({schedule, "0F0 overlaps with 0F1: the other half must be B or I", cell(0, 0)});
  order = {parse_instruction("0F0"), parse_instruction("0F1"), parse_instruction("0B0"),
           parse_instruction("0B1").overlapping_next()};
  expect({schedule, "0B1 is the first half of an overlap: that must be F", cell(0, 3)});
}

TEST(Validator, a_header_with_huge_numbers_is_refused_fast) {
  Schedule schedule = lists(" 0F0 0F1 0B0 0B1", good);
  schedule.micro_batches = 2147483647;
  expect({schedule, "incomplete: 2 stages x 2147483647 micro-batches need 4294967294 F, there are 4", {}});
}

TEST(Validation, shows_the_timeline_grid_with_the_offending_cell) {
  const Schedule bad = lists(" 0F0 0B0 0F1 0B1", " 1F0 1F1 1B0 1B1");
  EXPECT_EQ(test::error_text<ScheduleError>([&] { validate(bad).require_ok(bad); }),
            "deadlock: rank 0 is at 0B0, which needs 1B0 of rank 1, which is at 1F1, which needs 0F1 of rank 0, "
            "which is at 0B0\n"
            "rank 0 |  0F0    .     |   >0B0<  0F1   0B1\n"
            "rank 1 |   .    1F0    |    1F1   1B0   1B1\n");
}

}  // namespace
}  // namespace penstock::validate_test
