#include "penstock/trace/recorder.h"

#include <gtest/gtest.h>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"

namespace penstock::recorder_test {
namespace {

Span forward(int micro_batch) {
  return {Instruction::compute(Op::forward, StageId(0), MicroBatch(micro_batch)), Activity::compute, 10, 20, 0};
}

void record(Recorder& recorder, std::uint64_t step, int spans = 1) {
  recorder.begin_step(step);
  for (int i = 0; i < spans; ++i) recorder.note(forward(i));
  recorder.end_step();
}

std::vector<std::uint64_t> numbers(const Recorder& recorder) {
  std::vector<std::uint64_t> result;
  for (const RankStep& step : recorder.steps()) result.push_back(step.step);
  return result;
}

TEST(Recorder, stores_steps_with_their_spans) {
  Recorder recorder(4);
  const std::int64_t before = now_ns();
  record(recorder, 7, 3);
  const std::vector<RankStep> steps = recorder.steps();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, 7u);
  EXPECT_EQ(steps[0].spans, (std::vector<Span>{forward(0), forward(1), forward(2)}));
  EXPECT_LE(before, steps[0].begin_ns);
  EXPECT_LE(steps[0].begin_ns, steps[0].end_ns);
  EXPECT_LE(steps[0].end_ns, now_ns());
}

TEST(Recorder, drops_the_oldest) {
  Recorder recorder(3), of_one(1);
  for (std::uint64_t step = 1; step <= 8; ++step) {
    for (Recorder* each : {&recorder, &of_one}) record(*each, step, static_cast<int>(step));
    EXPECT_EQ(recorder.steps().back().spans.size(), step);
  }
  EXPECT_EQ(numbers(recorder), (std::vector<std::uint64_t>{6, 7, 8}));
  EXPECT_EQ(numbers(of_one), (std::vector<std::uint64_t>{8}));
}

TEST(Recorder, a_step_that_never_ended_is_not_stored_and_replaced) {
  Recorder recorder(2);
  record(recorder, 1);
  record(recorder, 2);
  recorder.begin_step(3);
  recorder.note(forward(0));
  EXPECT_EQ(numbers(recorder), (std::vector<std::uint64_t>{2})) << "its slot was taken";
  record(recorder, 4, 2);
  EXPECT_EQ(numbers(recorder), (std::vector<std::uint64_t>{2, 4}));
  EXPECT_EQ(recorder.steps().back().spans.size(), 2u);
}

TEST(Recorder, clear_drops_all_steps) {
  Recorder recorder(2);
  record(recorder, 1);
  recorder.clear();
  EXPECT_TRUE(recorder.steps().empty());
  record(recorder, 2);
  EXPECT_EQ(numbers(recorder), (std::vector<std::uint64_t>{2}));
}

// Regression test: 64 steps with many micro-batches took most of a rank's memory.
TEST(Recorder, is_bounded_in_bytes_and_stores_the_newest) {
  constexpr std::size_t most = 1000 * sizeof(Span);
  Recorder recorder(64, most);
  for (std::uint64_t step = 1; step <= 200; ++step) {
    record(recorder, step, step % 7 == 0 ? 600 : 200);
    EXPECT_LE(recorder.bytes(), most);
    ASSERT_FALSE(recorder.steps().empty());
    EXPECT_EQ(recorder.steps().back().step, step);
    EXPECT_EQ(recorder.steps().back().spans.size(), step % 7 == 0 ? 600u : 200u);
  }
  const std::vector<std::uint64_t> kept = numbers(recorder);
  EXPECT_GE(kept.size(), 2u);
  for (std::size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(kept[i], 200 - kept.size() + 1 + i);
  EXPECT_EQ(recorder.too_long(), 0u);
}

TEST(Recorder, only_the_busy_time_of_a_too_long_step_is_stored) {
  constexpr std::size_t most = 100 * sizeof(Span);
  Recorder recorder(4, most);
  record(recorder, 1, 20);
  recorder.begin_step(2);
  for (int i = 0; i < 1000; ++i) recorder.note({forward(0).instruction, Activity::compute, 10 + i, 11 + i, 0});
  recorder.end_step();
  EXPECT_LE(recorder.bytes(), most);
  EXPECT_EQ(recorder.too_long(), 1u);
  EXPECT_EQ(recorder.newest_busy().begin_ns, 10);
  EXPECT_EQ(recorder.newest_busy().end_ns, 1010);
  EXPECT_EQ(recorder.newest_busy().busy_ns, 1000);
  record(recorder, 3, 100);
  EXPECT_EQ(numbers(recorder), std::vector<std::uint64_t>{3});
  EXPECT_EQ(recorder.steps().back().spans.size(), 100u);
  EXPECT_EQ(recorder.newest_busy().busy_ns, 1000);
}

TEST(Recorder, refuses_to_store_0_steps) { EXPECT_THROW(Recorder(0), ConfigError); }

Instruction message(Op op, int stage, int peer, int micro_batch) {
  return Instruction::message(op, StageId(stage), StageId(peer), MicroBatch(micro_batch));
}

/// Two ranks in two replicas, of which each has one step with one message.
Trace trace_of(const Span& send, const Span& wait) {
  Trace trace;
  trace.schedule = lower(generate("gpipe", {.ranks = 2, .micro_batches = 2}));
  trace.replicas = 2;
  trace.ranks = {{}, {{7, 0, 100, {send}}}, {}, {{7, 0, 100, {wait}}}};
  return trace;
}

std::int64_t transit(const Span& send, const Span& wait) {
  Trace trace = trace_of(send, wait);
  fill_in_transits(trace);
  return trace.ranks[3][0].spans[0].transit_ns;
}

TEST(Transits, lie_between_the_begin_of_the_send_and_the_arrival) {
  const Span send{message(Op::send_forward, 0, 1, 1), Activity::communicate, 20, 25};
  const Span wait{message(Op::recv_forward, 1, 0, 1), Activity::wait, 10, 60, 0, 5};
  EXPECT_EQ(transit(send, wait), 60 - 5 - 20);
  Span other = send;
  other.instruction = message(Op::send_forward, 0, 1, 0);
  EXPECT_EQ(transit(other, wait), 0) << "another micro-batch";
  other = send;
  other.begin_ns = 90;
  EXPECT_EQ(transit(other, wait), 1) << "clocks that are a little wrong";
}

TEST(Transits, that_are_known_stay) {
  const Span send{message(Op::send_forward, 0, 1, 1), Activity::communicate, 20, 25};
  EXPECT_EQ(transit(send, {message(Op::recv_forward, 1, 0, 1), Activity::wait, 10, 60, 3, 5}), 3);
}

TEST(Transits, of_gradients_come_from_the_later_stage) {
  Trace trace = trace_of({message(Op::recv_backward, 0, 1, 0), Activity::wait, 30, 50},
                         {message(Op::send_backward, 1, 0, 0), Activity::communicate, 40, 41});
  fill_in_transits(trace);
  EXPECT_EQ(trace.ranks[1][0].spans[0].transit_ns, 10);
}
}  // namespace
}  // namespace penstock::recorder_test
