// The executor with hands that hold integers: the loop that trains networks, where TSAN can see all of it.
#include "penstock/runtime/executor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "penstock/runtime/stash.h"
#include "tests/runtime/run_integers.h"

namespace penstock {
namespace {

TEST(Program, EveryReceiveBelongsToTheInstructionThatNeedsIt) {
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 2}));
  const Dependencies dependencies(schedule, chain(2));
  const Program program(schedule.orders[1], dependencies);
  for (const Program::Action& action : program.actions()) {
    EXPECT_FALSE(is_receive(action.instruction.op()));
    const auto receives = action.end_receive - action.first_receive;
    EXPECT_EQ(receives, action.instruction.op() == Op::forward ? 1u : 0u) << to_string(action.instruction);
  }
}

TEST(Program, RefusesAMissingReceive) {
  Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 2}));
  std::erase_if(schedule.orders[1], [](const Instruction& i) { return is_receive(i.op()); });
  EXPECT_THROW(Program(schedule.orders[1], Dependencies(schedule, chain(2))), PlanError);
}

TEST(Stash, CountsAndKeepsItsBound) {
  Stash<int> stash;
  stash.set_bound(2);
  stash.put(StageId(0), MicroBatch(0), 10);
  stash.put(StageId(0), MicroBatch(1), 11);
  EXPECT_THROW(stash.put(StageId(0), MicroBatch(2), 12), InternalError);
  EXPECT_EQ(stash.take(StageId(0), MicroBatch(1)), 11);
  EXPECT_THROW(stash.take(StageId(0), MicroBatch(1)), InternalError);
  EXPECT_EQ(stash.peak(), 3);  // the one too many was seen
}

// Receives posted long before their use, as in torch's lists, must not stall the rank that posts them.
TEST(Execute, EarlyReceivesDoNotBlock) {
  Schedule schedule = lower(generate("gpipe", {.ranks = 3, .micro_batches = 4}));
  for (Order& order : schedule.orders)
    std::stable_partition(order.begin(), order.end(), [](const Instruction& i) { return is_receive(i.op()); });
  run_in_threads(schedule);
}

}  // namespace
}  // namespace penstock
