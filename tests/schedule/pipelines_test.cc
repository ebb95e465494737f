// Schedules whose stages have copies in several pipelines: placement, validation, lowering, costs, text and refusals.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "penstock/base/error.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/pictures.h"
#include "tests/base/error_text.h"

namespace penstock::pipelines_test {
namespace {

using test::error_text;

/// Two ranks, two stages; micro-batch 0 goes down, 1 goes up.
const std::string crossing =
    "penstock schedule 1\n"
    "name crossing\n"
    "ranks 2\n"
    "stages 2\n"
    "micro_batches 2\n"
    "rank_of_stage 0 1\n"
    "rank_of_stage 1 0\n"
    "pipeline_of_micro_batch 0 1\n"
    "rank 0: 0F0 1F1 1B1 0B0\n"
    "rank 1: 0F1 1F0 1B0 0B1\n";

std::string with(const std::string& from, const std::string& to) {
  std::string text = crossing;
  return text.replace(text.find(from), from.size(), to);
}

TEST(Pipelines, a_micro_batch_is_computed_by_the_copies_of_its_pipeline) {
  const Schedule schedule = read_schedule(crossing);
  EXPECT_EQ(schedule.pipeline_count(), 2);
  EXPECT_EQ(schedule.rank_of(StageId(0), MicroBatch(0)), Rank(0));
  EXPECT_EQ(schedule.rank_of(StageId(0), MicroBatch(1)), Rank(1));
  EXPECT_EQ(schedule.copy_on(StageId(1), Rank(0)), 1);
  EXPECT_EQ(schedule.orders, generate("chimera", {.ranks = 2, .micro_batches = 2}).orders);
  EXPECT_EQ(validate(schedule).reason, "");
  EXPECT_EQ(validate(lower(schedule)).reason, "");
  EXPECT_EQ(validate(lower(schedule)).peak_activations, (std::vector<int>{2, 2}));
}

TEST(Pipelines, violations_name_the_rank_of_the_micro_batch) {
  const Validation moved = validate(read_schedule(
      with("rank 0: 0F0 1F1 1B1 0B0\nrank 1: 0F1 1F0 1B0 0B1", "rank 0: 0F0 1F0 1B1 0B0\nrank 1: 0F1 1F1 1B0 0B1")));
  EXPECT_EQ(moved.reason, "1F0 is on rank 0, but stage 1 belongs to rank 1 for this micro-batch");
  const Validation missing = validate(read_schedule(with(" 0B1", "")));
  EXPECT_EQ(missing.reason, "0B1 is missing on rank 1");
  ASSERT_TRUE(missing.cell.has_value());
  EXPECT_EQ(missing.cell->rank, Rank(1));
  EXPECT_FALSE(validate(read_schedule(with("1F1 1B1 0B0", "0B0 1F1 1B1"))).ok == false)
      << "the other order of the two pipelines on a rank is as good";
  EXPECT_FALSE(validate(read_schedule(with("rank 0: 0F0 1F1 1B1 0B0", "rank 0: 1F1 1B1 0B0 0F0"))).ok);
}

TEST(Pipelines, headers_out_of_range_are_refused) {
  const auto reason = [](void (*change)(Schedule&)) {
    Schedule schedule = read_schedule(crossing);
    change(schedule);
    EXPECT_THROW(lower(schedule), ScheduleError);
    EXPECT_THROW(write_schedule(schedule), ScheduleError);
    return validate(schedule).reason;
  };
  EXPECT_NE(reason([](Schedule& s) { s.pipeline_of[1] = 2; }).find("pipeline 2, but there are 2"), std::string::npos);
  EXPECT_NE(reason([](Schedule& s) { s.pipeline_of.pop_back(); }).find("1 micro-batches are given, not of 2"),
            std::string::npos);
  EXPECT_NE(reason([](Schedule& s) { s.more_pipelines[0].pop_back(); }).find("pipeline 1 has 1 stages, not 2"),
            std::string::npos);
  EXPECT_NE(reason([](Schedule& s) { s.more_pipelines[0][0] = Rank(2); }).find("given to rank 2, but there are 2"),
            std::string::npos);
  EXPECT_NE(reason([](Schedule& s) { s.more_pipelines.clear(); }).find("2 micro-batches are given, not of 0"),
            std::string::npos);
}

TEST(Pipelines, files_are_read_back_and_errors_have_their_place) {
  EXPECT_EQ(write_schedule(read_schedule(crossing)), crossing);
  EXPECT_TRUE(rc::check("read(write(x)) == x", [] {
    const ScheduleShape shape{.ranks = *rc::gen::inRange(1, 7), .micro_batches = *rc::gen::inRange(1, 12)};
    const Schedule schedule = generate("chimera", shape);
    RC_ASSERT(read_schedule(write_schedule(schedule)) == schedule);
    RC_ASSERT(read_schedule(write_schedule(lower(schedule))) == lower(schedule));
    RC_ASSERT(strip(lower(schedule)) == schedule);
  }));
  const auto refusal = [](const std::string& from, const std::string& to) {
    return error_text<DataError>([&] { read_schedule(with(from, to)); });
  };
  EXPECT_EQ(refusal("micro_batch 0 1", "micro_batch 0 2").substr(0, 20), "line 8, column 27: a");
  EXPECT_EQ(refusal("pipeline_of_micro_batch 0 1\n", "").substr(0, 17), "line 8, column 1:");
  EXPECT_EQ(refusal("rank_of_stage 1 0\n", "").substr(0, 17), "line 7, column 1:");
  EXPECT_EQ(refusal("micro_batch 0 1", "micro_batch 0").substr(0, 18), "line 8, column 26:");
}

TEST(Pipelines, copies_sum_their_gradients_before_the_step_and_each_pays_the_update) {
  const Schedule lowered = lower(read_schedule(crossing));
  EXPECT_TRUE(lowered.has(Op::reduce));
  for (const Order& order : lowered.orders) {
    ASSERT_GE(order.size(), 4U);
    EXPECT_EQ(to_string(order[order.size() - 4]) + to_string(order[order.size() - 3]), "0REDUCE1REDUCE");
  }
  const Simulation plain = simulate(lowered, StageCosts::unit());
  const Simulation updated = simulate(lowered, {.update = {5}});
  EXPECT_EQ(plain.makespan, 6);
  EXPECT_EQ(updated.makespan, 6 + 2 * 5);
  EXPECT_EQ(updated.busy, (std::vector<double>{16, 16}));
  EXPECT_EQ(simulate(read_schedule(crossing), {.update = {5}}).makespan, updated.makespan);
}

TEST(Pipelines, a_step_waits_for_the_other_copy) {
  Schedule schedule = lower(read_schedule(crossing));
  Order& order = schedule.orders[0];  // 0STEP before its own 0B0: rank 1 still computes 0B1 without it
  const auto step = std::ranges::find(order, Instruction::step_wide(Op::step, StageId(0)));
  std::rotate(order.begin(), step, step + 1);
  EXPECT_FALSE(validate(schedule).ok);
}

TEST(Pipelines, messages_of_each_pipeline_have_their_own_channels) {
  const Schedule lowered = lower(generate("chimera", {.ranks = 4, .micro_batches = 8}));
  std::size_t messages = 0;
  for (const Channel& channel : channels_of(lowered)) messages += channel.messages.size();
  EXPECT_EQ(messages, 2U * 3 * 8);
  EXPECT_EQ(channels_of(lowered).size(), 12U);
  EXPECT_EQ(least_posts(lowered), 1);
}

TEST(Pipelines, a_link_may_cross_ranks_in_one_pipeline_only) {
  Schedule schedule = read_schedule(with("rank_of_stage 1 0\n", "rank_of_stage 1 1\n"));
  schedule.orders = {{}, {}};
  const auto add = [&](std::size_t rank, const char* text) {
    schedule.orders[rank].push_back(parse_instruction(text));
  };
  for (const char* text : {"0F0", "0B0"}) add(0, text);
  for (const char* text : {"0F1", "1F1", "1B1", "0B1", "1F0", "1B0"}) add(1, text);
  EXPECT_EQ(validate(schedule).reason, "");
  const Schedule lowered = lower(schedule);
  EXPECT_EQ(validate(lowered).reason, "");
  EXPECT_EQ(lowered.instruction_count(), 8U + 4 + 2 * 3);
  EXPECT_EQ(simulate(lowered, {.message = 0.5}).makespan, simulate(schedule, {.message = 0.5}).makespan);
}

TEST(Pipelines, what_needs_one_owner_per_stage_refuses) {
  const Schedule schedule = read_schedule(crossing);
  for (const std::string& text : {error_text<ScheduleError>([&] { write_torch_csv(schedule); }),
                                  error_text<ScheduleError>([&] { fuse_w(schedule); })})
    EXPECT_NE(text.find("'crossing' has 2 copies of each stage"), std::string::npos) << text;
}

TEST(Pipelines, pictures_and_limits_count_both_copies) {
  const Schedule lowered = lower(generate("chimera", {.ranks = 4, .micro_batches = 4}));
  EXPECT_NE(schedule_svg(lowered, StageCosts::unit()).find("3F1"), std::string::npos);
  EXPECT_NE(schedule_json(lowered, StageCosts::unit()).find("\"more_pipelines\": [[3,2,1,0]]"), std::string::npos);
  StageCosts costs;
  costs.activation_bytes = {100, 10, 10, 1};
  const std::vector<double> peaks = peak_activation_bytes(lowered, costs);
  EXPECT_EQ(peaks[0], 2 * 100 + 1);  // 0F0 0F2 3F1
  EXPECT_EQ(peaks[0], peaks[3]);
}

}  // namespace
}  // namespace penstock::pipelines_test
