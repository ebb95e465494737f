#include "penstock/world/gather.h"

#include <gtest/gtest.h>

namespace penstock::host_clock_test {
namespace {

TEST(HostClock, the_shortest_round_trip_gives_the_offset) {
  // The other clock is 5,000,000 ahead; a slow answer shifts the reading by half of its delay.
  const std::vector<ClockReading> readings{
      {100, 5'000'900, 1'100}, {2'000, 5'002'010, 2'020}, {3'000, 5'003'001, 4'000}};
  EXPECT_EQ(clock_offset_ns(readings), 5'000'000);
  EXPECT_EQ(clock_offset_ns({{9'000'000, 10, 9'000'020}}), -9'000'000) << "a host that has just been started";
}

TEST(HostClock, every_time_of_a_step_is_converted) {
  const Instruction instruction = Instruction::compute(Op::forward, StageId(0), MicroBatch(0));
  std::vector<RankStep> steps{{7, 1000, 1090, {{instruction, Activity::wait, 1010, 1020, 3, 2}}}};
  to_own_clock(900, steps);
  const std::vector<RankStep> moved{{7, 100, 190, {{instruction, Activity::wait, 110, 120, 3, 2}}}};
  EXPECT_EQ(steps, moved) << "transit times do not change";
}

}  // namespace
}  // namespace penstock::host_clock_test
