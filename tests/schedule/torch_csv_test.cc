#include "penstock/schedule/torch_csv.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/simulate.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/validate.h"
#include "tests/base/error_text.h"

namespace penstock::torch_csv_test {
namespace {

std::string lists(const Schedule& schedule) {
  const std::string text = write_schedule(schedule);
  return text.substr(text.find("rank 0:"));
}

/// The files that torch.distributed.pipelining 2.13 wrote.
class TorchFile : public testing::TestWithParam<const char*> {
 protected:
  static CsvSchedule read() {
    std::ifstream file(std::string(TESTS_FOLDER "/schedule/torch_csv/") + GetParam(), std::ios::binary);
    return read_torch_csv(std::string{std::istreambuf_iterator<char>(file), {}});
  }
};

TEST_P(TorchFile, is_valid) {
  const CsvSchedule csv = read();
  const Validation result = validate(csv.schedule);
  EXPECT_EQ(result.reason, "");
  const Simulation run = simulate(csv.schedule, StageCosts::unit());
  EXPECT_GT(run.makespan, 0);
  EXPECT_LT(run.bubble_span, 0.16);
  // Our own lowering of the compute instructions is not slower than torch's.
  const Schedule again = lower(strip(csv.schedule));
  EXPECT_EQ(validate(again).reason, "");
  EXPECT_LE(simulate(again, StageCosts::unit()).makespan, run.makespan);
}

TEST_P(TorchFile, reads_back_in_both_forms) {
  const Schedule schedule = read().schedule;
  EXPECT_EQ(read_torch_csv(write_torch_csv(schedule)).schedule, strip(schedule));
  const Schedule lowered = schedule.is_lowered() ? schedule : lower(schedule, LowerOptions{.step = false});
  const Schedule back = read_torch_csv(write_torch_csv(schedule, {.messages = true})).schedule;
  EXPECT_EQ(strip(back), strip(schedule));
  EXPECT_EQ(validate(back).reason, "");
  EXPECT_EQ(back.instruction_count(), lowered.instruction_count());
}

INSTANTIATE_TEST_SUITE_P(Torch, TorchFile,
                         testing::Values("dualpipev_p4_m8_v2_compute.csv", "interleaved1f1b_p4_m8_v2_comms.csv",
                                         "interleaved1f1b_p4_m8_v2_compute.csv", "interleavedzb_p4_m8_v2_comms.csv",
                                         "interleavedzb_p4_m8_v2_compute.csv", "loopedbfs_p2_m4_v2_comms.csv",
                                         "loopedbfs_p2_m4_v2_compute.csv", "zbv_p4_m8_v2_comms.csv",
                                         "zbv_p4_m8_v2_compute.csv"),
                         [](const auto& file) { return std::filesystem::path(file.param).stem().string(); });

TEST(TorchCsv, backwards_out_of_order_become_I_and_a_delayed_W) {
  const CsvSchedule csv = read_torch_csv("0F0,0F1,0F2,,,0B2,0B1,0B0\r\n,1F0,1F1,1F2,1B2,1B1,1B0\r\n");
  EXPECT_EQ(lists(csv.schedule),
            "rank 0: 0F0 0F1 0F2 0I2 0I1 0B0 0W1 0W2\n"
            "rank 1: 1F0 1F1 1F2 1I2 1I1 1B0 1W1 1W2\n");
  ASSERT_EQ(csv.notes.size(), 2u);
  EXPECT_EQ(csv.notes[1],
            "stage 1: 2 of 3 weight gradients came out of micro-batch order: B became I, and W is delayed");
  EXPECT_EQ(validate(csv.schedule).peak_activations, (std::vector<int>{3, 3}));  // delayed W's hold activations
}

TEST(TorchCsv, a_delayed_W_follows_the_messages_of_its_predecessor) {
  const CsvSchedule csv = read_torch_csv(
      "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0\n"
      "1RECV_F0,1F0,1RECV_F1,1F1,1I1,1SEND_B1,1W1,1B0,1SEND_B0,1REDUCE_GRAD\n");
  EXPECT_EQ(lists(csv.schedule),
            "rank 0: 0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B1 0I1 0RECV_B0 0B0 0W1\n"
            "rank 1: 1RECV_F0 1F0 1RECV_F1 1F1 1I1 1SEND_B1 1B0 1SEND_B0 1W1 1REDUCE\n");
  EXPECT_EQ(validate(csv.schedule).reason, "");
}

TEST(TorchCsv, a_schedule_in_order_is_unchanged) {
  const CsvSchedule csv = read_torch_csv("0F0 , 0F1,,0B0,0I1,0W1\n");
  EXPECT_EQ(lists(csv.schedule), "rank 0: 0F0 0F1 0B0 0I1 0W1\n");
  EXPECT_TRUE(csv.notes.empty());
}

TEST(TorchCsv, columns_are_units_of_time) {
  EXPECT_EQ(write_torch_csv(generate("1f1b", {.ranks = 2, .micro_batches = 2})),
            "0F0,0F1,,0B0,,0B1\r\n"
            ",1F0,1B0,1F1,1B1\r\n");
}

TEST(TorchCsv, writes_messages_and_reduce) {
  const LowerOptions all{.reduce = true, .norm = true};
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 1}), all);
  const std::string expected =
      "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD\r\n"
      "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\r\n";
  EXPECT_EQ(write_torch_csv(schedule, {.messages = true}), expected);
  EXPECT_EQ(write_torch_csv(strip(schedule), {.messages = true}),
            "0F0,0SEND_F0,0RECV_B0,0B0\r\n"
            "1RECV_F0,1F0,1B0,1SEND_B0\r\n");
}

TEST(TorchCsv, expands_fused_Ws) {
  const Schedule fused = read_schedule(
      "penstock schedule 1\nname\nranks 1\nstages 1\nmicro_batches 3\n"
      "rank_of_stage 0\nrank 0: 0F0 0F1 0F2 0I0 0I1 0I2 0W0-2\n");
  EXPECT_EQ(write_torch_csv(fused), "0F0,0F1,0F2,0I0,0I1,0I2,0W0,0W1,0W2\r\n");
}

TEST(TorchCsv, overlap_pairs_share_a_cell_in_both_forms) {
  const Schedule pair = read_schedule(
      "penstock schedule 1\nname\nranks 2\nstages 2\nmicro_batches 2\n"
      "rank_of_stage 0 1\nrank 0: 0F0 (0F1;0B0)OVERLAP_F_B 0B1\n"
      "rank 1: 1F0 1B0 1F1 1B1\n");
  EXPECT_EQ(write_torch_csv(pair), "0F0,,,(0F1;0B0)OVERLAP_F_B,,0B1\r\n,1F0,1B0,1F1,1B1\r\n");
  EXPECT_EQ(write_torch_csv(lower(pair), {.messages = true}),
            "0F0,0SEND_F0,0RECV_B0,(0F1;0B0)OVERLAP_F_B,0SEND_F1,0RECV_B1,0B1\r\n"
            "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\r\n");
  EXPECT_EQ(read_torch_csv(write_torch_csv(pair)).schedule, pair);
}

TEST(TorchCsv, refuses_schedules_that_torch_would_misread) {
  Links links = chain(3);
  links.push_back({StageId(0), StageId(2)});
  const Schedule skip = lower(generate("gpipe", {.ranks = 3, .micro_batches = 1}), links);
  EXPECT_THROW(write_torch_csv(skip, {.messages = true}), ScheduleError);
  EXPECT_THROW(write_torch_csv(skip), ScheduleError);
  Schedule idle = generate("gpipe", {.ranks = 1, .micro_batches = 1});
  idle.orders.emplace_back();
  EXPECT_THROW(write_torch_csv(idle), ScheduleError);
  Schedule stuck = generate("gpipe", {.ranks = 1, .micro_batches = 1});
  std::swap(stuck.orders[0][0], stuck.orders[0][1]);
  EXPECT_THROW(write_torch_csv(stuck), ScheduleError);
  stuck.orders[0].pop_back();
  EXPECT_THROW(write_torch_csv(stuck), ScheduleError);
}

struct Wrong {
  const char* text;
  const char* error;
};

TEST(TorchCsv, errors_name_row_and_cell) {
  const Wrong cases[] = {
      {"", "this CSV has no instruction"},
      {"0F0\n\n", "row 2, cell 1: a row without instructions"},
      {"0F0,0X0\n", "row 1, cell 2: '0X0', column 2: 'X' is not an instruction"},
      {"0F0\n,1F0,,1F\n", "row 2, cell 4: '1F', column 3: a number is expected"},
      {"0UNSHARD,0F0\n", "row 1, cell 1: '0UNSHARD': parameters are not sharded here"},
      {"0F0,0RESHARD\n", "row 1, cell 2: '0RESHARD': parameters are not sharded here"},
      {"0W0-7\n", "row 1, cell 1: '0W0-7' is an instruction of .sched files"},
      {"0SEND_F1>3\n", "row 1, cell 1: '0SEND_F1>3' is an instruction of .sched files"},
      {"0F0,0STEP\n", "row 1, cell 2: '0STEP' is not an instruction of torch's CSV"},
      {"0F2147483647\n", "row 1, cell 1: '0F2147483647': the micro-batch is too large"},
      {"(0F0;0B0)\n", "row 1, cell 1: '(0F0;0B0)' does not end with ')OVERLAP_F_B'"},
      {"(0F0)OVERLAP_F_B\n", "row 1, cell 1: an overlap takes two instructions"},
      {"(0B0;0F0)OVERLAP_F_B\n", "row 1, cell 1: an overlap is F, then B or I"},
      {"0F0\n0B0\n", "row 2: 0B0 is here, but stage 0 computes in row 1"},
      {"0F0,2F0\n", "stage 1 computes nowhere, but the stages go up to 2"},
      {"0F0,0SEND_F0\n", "stage 1 computes nowhere, but the stages go up to 1"},
      {"0F0,\"0F1\"\n", "row 1, cell 2: '\"0F1\"', column 1"},
  };
  for (const Wrong& wrong : cases) {
    const std::string text = test::error_text<DataError>([&] { read_torch_csv(wrong.text); });
    EXPECT_TRUE(text.starts_with(wrong.error)) << text << "\nexpected: " << wrong.error;
  }
}

}  // namespace
}  // namespace penstock::torch_csv_test
