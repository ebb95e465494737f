#include "penstock/world/host_clock.h"

#include <gtest/gtest.h>

namespace penstock {
namespace {

TEST(HostClock, the_shortest_way_tells_the_offset) {
  // The other clock shows 5,000,000 more; answers that were long on their way are off by half of that.
  const std::vector<ClockReading> readings{
      {100, 5'000'900, 1'100}, {2'000, 5'002'010, 2'020}, {3'000, 5'003'001, 4'000}};
  EXPECT_EQ(clock_offset_ns(readings), 5'000'000);
  EXPECT_EQ(clock_offset_ns({{9'000'000, 10, 9'000'020}}), -9'000'000) << "a host that has just been started";
}

TEST(HostClock, every_time_of_a_step_moves) {
  const Instruction instruction = Instruction::compute(Op::forward, StageId(0), MicroBatch(0));
  std::vector<RankStep> steps{{7, 1000, 1090, {{instruction, Activity::wait, 1010, 1020, 3, 2}}}};
  to_own_clock(900, steps);
  const std::vector<RankStep> moved{{7, 100, 190, {{instruction, Activity::wait, 110, 120, 3, 2}}}};
  EXPECT_EQ(steps, moved) << "how long a message was on its way stays as it was";
}

}  // namespace
}  // namespace penstock
