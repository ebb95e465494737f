// Every schedule on the executor, with integers: each schedule that validate() accepts completes, with the numbers of
// the plain loop and the peak of live activations that validate() counted.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/runtime/run_integers.h"
#include "tests/schedule/random_schedule.h"
#include "tests/support/sanitized.h"

namespace penstock::every_schedule_test {
namespace {

std::string trace_of(const ScheduleGenerator& generator, const ScheduleShape& shape) {
  return say(generator.name, " p ", shape.ranks, " m ", shape.micro_batches, " v ", shape.chunks);
}

/// `visit(generator, v)` for every number of chunks up to 3 that a generator takes whose stages have one owner each.
template <class Visit>
void for_each_generator(Visit&& visit) {
  for (const ScheduleGenerator& generator : generators())
    for (int v = generator.min_chunks; generator.single_owner && v <= std::min(generator.max_chunks, 3); ++v)
      visit(generator, v);
}

TEST(EverySchedule, completes_on_one_thread) {
  for_each_generator([](const ScheduleGenerator& generator, int v) {
    for (int p = 1; p <= 12; p += loop_step)
      for (int m = 1; m <= 24; m += loop_step) {
        const ScheduleShape shape{.ranks = p, .micro_batches = m, .chunks = v};
        SCOPED_TRACE(trace_of(generator, shape));
        run_interleaved(lower(generate(generator.name, shape)));
        if (testing::Test::HasFailure()) return;
      }
  });
}

TEST(EverySchedule, completes_on_threads_with_random_delays) {
  unsigned seed = 0;
  for_each_generator([&](const ScheduleGenerator& generator, int v) {
    for (const int p : {1, 2, 3, 4, 5})
      for (const int m : {1, 2, 3, 7}) {
        const ScheduleShape shape{.ranks = p, .micro_batches = m, .chunks = v};
        SCOPED_TRACE(trace_of(generator, shape));
        run_in_threads(lower(generate(generator.name, shape)), ++seed);
        if (testing::Test::HasFailure()) return;
      }
  });
}

TEST(EverySchedule, is_valid_for_many_ranks_and_micro_batches) {
  for_each_generator([](const ScheduleGenerator& generator, int v) {
    for (int p = 13; p <= 32; p += loop_step)
      for (const int m : {1, p - 1, p + 1, 2 * p + 3, 64}) {
        const ScheduleShape shape{.ranks = p, .micro_batches = std::min(m, 64), .chunks = v};
        const ValidateOptions bound{.links = {}, .activation_bound = generator.activation_bound(shape, {})};
        const Validation validation = validate(lower(generate(generator.name, shape)), bound);
        ASSERT_TRUE(validation.ok) << trace_of(generator, shape) << ": " << validation.reason;
      }
  });
}

void run_both_ways(const Schedule& schedule) {
  run_interleaved(schedule);
  for (unsigned seed = 1; seed <= 5; ++seed) run_in_threads(schedule, seed);
}

Schedule lists(const std::string& header, const std::string& orders) {
  return read_schedule("penstock schedule 1\nname\n" + header + "\n" + orders);
}

TEST(EverySchedule, a_split_backward_runs_with_single_late_and_fused_ws) {
  run_both_ways(lower(lists("ranks 2\nstages 2\nmicro_batches 4\nrank_of_stage 0 1",
                            "rank 0: 0F0 0F1 0I0 0F2 0I1 0F3 0I2 0W0-2 0I3 0W3\n"
                            "rank 1: 1F0 1I0 1F1 1I1 1W0-1 1F2 1B2 1F3 1I3 1W3\n"),
                      LowerOptions{.reduce = true, .norm = true}));
}

TEST(EverySchedule, neighbouring_chunks_on_one_rank_need_no_messages) {
  run_both_ways(lower(lists("ranks 2\nstages 4\nmicro_batches 3\nrank_of_stage 0 1 1 0",
                            "rank 0: 0F0 0F1 3F0 3I0 0F2 3F1 3I1 3W0-1 0B0 3F2 3I2 0I1 3W2 0I2 0W1-2\n"
                            "rank 1: 1F0 2F0 1F1 2F1 2B0 1F2 1B0 2I1 2F2 1I1 2W1 2B2 1I2 1W1 1W2\n")));
}

TEST(EverySchedule, another_order_of_weight_gradients_changes_the_hashes) {
  Schedule schedule =
      lower(lists("ranks 1\nstages 1\nmicro_batches 2\nrank_of_stage 0", "rank 0: 0F0 0F1 0I0 0I1 0W0 0W1\n"));
  const StepValues expected = plain_loop(schedule);
  std::swap(schedule.orders[0][4], schedule.orders[0][5]);
  SharedPost::Messages messages;
  IntegerHandler handler(SharedPost{&messages}, schedule, 2);
  Recorder recorder;
  recorder.begin_step(0);
  rank::execute(programs_of(schedule)[0], handler, recorder);
  EXPECT_EQ(handler.values().outputs, expected.outputs);
  EXPECT_NE(handler.values().weights, expected.weights);
}

/// Schedule files written by torch.distributed.pipelining 2.13.
class TorchFile : public testing::TestWithParam<const char*> {};

TEST_P(TorchFile, runs) {
  std::ifstream file(std::string(TESTS_FOLDER "/schedule/torch_csv/") + GetParam(), std::ios::binary);
  const Schedule schedule = read_torch_csv(std::string{std::istreambuf_iterator<char>(file), {}}).schedule;
  if (schedule.is_lowered()) run_both_ways(schedule);
  run_both_ways(lower(strip(schedule)));
}

INSTANTIATE_TEST_SUITE_P(Torch, TorchFile,
                         testing::Values("dualpipev_p4_m8_v2_compute.csv", "interleaved1f1b_p4_m8_v2_comms.csv",
                                         "interleaved1f1b_p4_m8_v2_compute.csv", "interleavedzb_p4_m8_v2_comms.csv",
                                         "interleavedzb_p4_m8_v2_compute.csv", "loopedbfs_p2_m4_v2_comms.csv",
                                         "loopedbfs_p2_m4_v2_compute.csv", "zbv_p4_m8_v2_comms.csv",
                                         "zbv_p4_m8_v2_compute.csv"),
                         [](const auto& file) { return std::filesystem::path(file.param).stem().string(); });

TEST(EverySchedule, random_schedules_that_validate_accepts_run) {
  EXPECT_TRUE(rc::check("run(x) == plain loop", [] {
    const int stages = *rc::gen::inRange(1, 6);
    const Schedule schedule = lower(working_schedule(stages, chain(stages)),
                                    {.reduce = *rc::gen::arbitrary<bool>(), .norm = *rc::gen::arbitrary<bool>()});
    RC_LOG() << write_schedule(schedule);
    run_interleaved(schedule);
    run_in_threads(schedule, *rc::gen::arbitrary<unsigned>());
    RC_ASSERT(!testing::Test::HasFailure());
  }));
}

}  // namespace
}  // namespace penstock::every_schedule_test
