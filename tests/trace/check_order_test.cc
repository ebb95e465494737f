#include "penstock/trace/check_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "penstock/base/error.h"
#include "tests/trace/made_trace.h"

namespace penstock::check_order_test {
namespace {

std::string violation(const Trace& trace, std::int64_t tolerance_ns = 0) {
  return check_order(trace, tolerance_ns).violation.value_or("none");
}

TEST(CheckOrder, accepts_every_schedule_as_it_is_simulated) {
  for (const ScheduleGenerator& generator : generators())
    for (const int replicas : {1, 2}) {
      if (!generator.single_owner) continue;  // no pipeline executes it
      const Trace trace = made_trace({.schedule = std::string(generator.name),
                                      .shape = {.ranks = 3, .micro_batches = 5, .chunks = generator.min_chunks},
                                      .costs = {.message = 0.25},
                                      .replicas = replicas,
                                      .steps = 2});
      const OrderCheck check = check_order(trace);
      EXPECT_EQ(check.violation.value_or(""), "") << generator.name;
      EXPECT_EQ(check.steps, 2U * static_cast<unsigned>(replicas));
      std::uint64_t spans = 0;
      for (const auto& rank : trace.ranks)
        for (const RankStep& step : rank) spans += step.spans.size();
      EXPECT_EQ(check.instructions, spans);
    }
}

/// A step of two ranks whose instruction `name` on its rank has been changed.
Trace changed(const std::string& name,
              const std::function<void(std::vector<Span>&, std::vector<Span>::iterator)>& change) {
  Trace trace = made_trace({.shape = {.ranks = 2, .micro_batches = 3}, .costs = {.message = 0.5}});
  for (auto& rank : trace.ranks) {
    auto& spans = rank[0].spans;
    const auto at =
        std::find_if(spans.begin(), spans.end(), [&](const Span& span) { return to_string(span.instruction) == name; });
    if (at == spans.end()) continue;
    change(spans, at);
    return trace;
  }
  throw InternalError("no " + name);
}

TEST(CheckOrder, finds_an_instruction_that_begins_before_its_message_has_arrived) {
  const Trace early = changed("1F1", [](auto&, auto span) { span->begin_ns -= 1500; });
  EXPECT_EQ(violation(early), "step 1, rank 1: 1F1 began 1.5 us before 1RECV_F1 ended");
  EXPECT_EQ(violation(early, 1499), "step 1, rank 1: 1F1 began 1.5 us before 1RECV_F1 ended");
  EXPECT_EQ(violation(early, 1500), "none");
}

TEST(CheckOrder, finds_a_wait_that_ends_before_its_message_is_sent) {
  const auto by = ns_of(20);
  EXPECT_EQ(violation(changed("0SEND_F2", [&](auto&, auto span) { span->begin_ns += by; })),
            "step 1, rank 1: 1RECV_F2 ended 19500 us before 0SEND_F2 began");
}

TEST(CheckOrder, finds_instructions_that_are_missing_or_run_twice) {
  EXPECT_EQ(violation(changed("0F1", [](auto& spans, auto span) { spans.erase(span); })),
            "step 1, rank 0: 0SEND_F1 ran, and done_forward(0, 1), which it needs, never happened");
  EXPECT_EQ(violation(changed("1B0", [](auto& spans, auto span) { spans.insert(span, Span(*span)); })),
            "step 1, rank 1: 1B0 ran, and done_input(1, 0) had happened before");
  EXPECT_EQ(violation(changed("1B2", [](auto& spans, auto span) { spans.erase(span); })),
            "step 1, rank 1: 1SEND_B2 ran, and done_input(1, 2), which it needs, never happened");
}

TEST(CheckOrder, compares_shorter_steps_with_as_many_micro_batches_as_they_have) {
  Trace trace = made_trace({.shape = {.ranks = 2, .micro_batches = 3}});
  const Trace shorter = made_trace({.shape = {.ranks = 2, .micro_batches = 2}});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    trace.ranks[rank].push_back(shorter.ranks[rank][0]);
    trace.ranks[rank][1].step = 2;
  }
  EXPECT_EQ(violation(trace), "none");
  EXPECT_EQ(check_order(trace).steps, 2U);
  trace.ranks[1].pop_back();  // not all ranks have recorded it
  EXPECT_EQ(check_order(trace).steps, 1U);
}

// Micro-batches that do not exist are refused before they take memory.
TEST(CheckOrder, refuses_instructions_of_another_schedule) {
  const auto with = [](int stage, int micro_batch) {
    return changed("0F1", [=](auto&, auto span) {
      span->instruction = Instruction::compute(Op::forward, StageId(stage), MicroBatch(micro_batch));
    });
  };
  EXPECT_THROW(check_order(with(7, 0)), ScheduleError);
  for (const int number : {3, 30'000'000, std::numeric_limits<int>::max()})
    EXPECT_THROW(check_order(with(0, number)), ScheduleError) << number;
  Trace many = with(0, 30'000'000);
  many.schedule.micro_batches = 40'000'000;
  EXPECT_THROW(check_order(many), ScheduleError);
}

}  // namespace
}  // namespace penstock::check_order_test
