// The executor with a handler of integers: the loop that trains networks, under the thread sanitizer.
#include "penstock/rank/executor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/runtime/run_integers.h"

namespace penstock::executor_test {
using namespace rank;
namespace {

TEST(Program, every_receive_belongs_to_the_instruction_that_needs_it) {
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 2}));
  const Dependencies dependencies(schedule, chain(2));
  const Program program(schedule.orders[1], dependencies);
  for (const Program::Action& action : program.actions()) {
    EXPECT_FALSE(is_receive(action.instruction.op()));
    const auto receives = action.end_receive - action.first_receive;
    EXPECT_EQ(receives, action.instruction.op() == Op::forward ? 1u : 0u) << to_string(action.instruction);
  }
}

TEST(Program, rejects_a_missing_receive) {
  Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 2}));
  std::erase_if(schedule.orders[1], [](const Instruction& i) { return is_receive(i.op()); });
  EXPECT_THROW(Program(schedule.orders[1], Dependencies(schedule, chain(2))), ScheduleError);
}

TEST(ActivationStore, counts_and_enforces_its_bound) {
  ActivationStore<int> activation_store;
  activation_store.set_bound(2);
  activation_store.put(StageId(0), MicroBatch(0), 10);
  activation_store.put(StageId(0), MicroBatch(1), 11);
  EXPECT_THROW(activation_store.put(StageId(0), MicroBatch(2), 12), InternalError);
  EXPECT_EQ(activation_store.take(StageId(0), MicroBatch(1)), 11);
  EXPECT_THROW(activation_store.take(StageId(0), MicroBatch(1)), InternalError);
  EXPECT_EQ(activation_store.peak(), 3);  // includes the context that exceeded the bound
}

// The time of a wait after its message has arrived is not a wait for the peer.
TEST(Execute, records_how_late_a_rank_woke_up) {
  struct LateHandler {
    std::int64_t arrived_ns = 0;
    void begin(const Instruction&) {}
    Arrival receive(const Instruction& instruction) {
      const std::int64_t begin = now_ns();
      while (now_ns() < begin + 2'000'000) continue;
      if (instruction.micro_batch() == MicroBatch(0)) return {.arrived_ns = begin + 1'500'000, .transit_ns = 700};
      if (instruction.micro_batch() == MicroBatch(1)) return {.arrived_ns = 1};  // long before the wait began
      return {};
    }
    void perform(const Instruction&) {}
  } handler;
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 3}));
  const Program program(schedule.orders[1], Dependencies(schedule, chain(2)));
  Recorder recorder;
  recorder.begin_step(1);
  execute(program, handler, recorder);
  recorder.end_step();
  const RankStep step = recorder.steps().front();
  for (const Span& span : step.spans) {
    const std::int64_t length = span.end_ns - span.begin_ns;
    const int micro_batch = span.activity == Activity::wait ? span.instruction.micro_batch().value() : -1;
    if (micro_batch == 0) {
      EXPECT_EQ(span.transit_ns, 700);
      EXPECT_GE(span.late_ns, 500'000);
      EXPECT_LE(span.late_ns, length - 1'500'000);
    } else {
      EXPECT_EQ(span.late_ns, micro_batch == 1 ? length : 0) << to_string(span.instruction);
    }
  }
}

// Receives posted long before their use, as in torch's schedules, must not stall the rank that posts them.
TEST(Execute, early_receives_do_not_block) {
  Schedule schedule = lower(generate("gpipe", {.ranks = 3, .micro_batches = 4}));
  for (Order& order : schedule.orders)
    std::stable_partition(order.begin(), order.end(), [](const Instruction& i) { return is_receive(i.op()); });
  run_in_threads(schedule);
}

}  // namespace
}  // namespace penstock::executor_test
