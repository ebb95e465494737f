#include "penstock/trace/recorder.h"

#include <gtest/gtest.h>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"

namespace penstock::transits_test {
namespace {

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
}  // namespace penstock::transits_test
