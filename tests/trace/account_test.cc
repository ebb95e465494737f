#include "penstock/trace/account.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <regex>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/trace/made_trace.h"

namespace penstock::account_test {
namespace {

constexpr double tiny = 1e-9;

/// Expects these times of each rank: compute, and waits in the warm-up, the steady phase and the drain.
void expect_phases(const Account& result, const std::vector<std::array<double, 4>>& expected) {
  ASSERT_EQ(result.ranks.size(), expected.size());
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    const RankAccount& of_rank = result.ranks[rank];
    EXPECT_DOUBLE_EQ(of_rank.compute, expected[rank][0]);
    EXPECT_DOUBLE_EQ(of_rank.wait_warmup, expected[rank][1]);
    EXPECT_DOUBLE_EQ(of_rank.wait_imbalance, expected[rank][2]);
    EXPECT_DOUBLE_EQ(of_rank.wait_drain, expected[rank][3]);
  }
}

//   rank 0 | F0 F1 .. B0-- F2 B1-- F3 B2-- .. B3--     F = 1, B = 2: 15 units, each rank idle for 3
//   rank 1 | .. F0 B0-- F1 B1-- F2 B2-- F3 B3-- ..
TEST(Account, parts_of_1f1b) {
  const Account result = account(made_trace({.shape = {.ranks = 2, .micro_batches = 4}}));
  EXPECT_EQ(result.step, 1u);
  EXPECT_DOUBLE_EQ(result.measured_ms, 15);
  EXPECT_DOUBLE_EQ(result.predicted_ms, 15);
  EXPECT_NEAR(result.bubble_measured, 0.2, tiny);
  EXPECT_NEAR(result.bubble_predicted, 0.2, tiny);
  EXPECT_NEAR(result.bubble_span_measured, 0.2, tiny);
  expect_phases(result, {{12, 2, 0, 1}, {12, 1, 0, 2}});  // rank 0 waits before B0 and B3
  EXPECT_EQ(result.ranks[0].stages, (std::vector<StageId>{StageId(0)}));
  EXPECT_DOUBLE_EQ(result.ranks[1].waiting(), 3);
}

// The two bubbles differ if no rank is busy from the begin to the end of the step. Here rank 1 starts one unit later.
TEST(Account, span_is_not_makespan) {
  const Account result = account(made_trace({.schedule = "forward-only"}));
  EXPECT_DOUBLE_EQ(result.measured_ms, 5);
  EXPECT_NEAR(result.bubble_measured, 0.2, tiny);
  EXPECT_NEAR(result.bubble_span_measured, 0, tiny);
  EXPECT_NEAR(result.bubble_span_predicted, 0, tiny);
}

TEST(Account, update_is_busy) {
  const Account result = account(made_trace({.costs = {.update = {5}}}));
  EXPECT_DOUBLE_EQ(result.measured_ms, 20);
  EXPECT_DOUBLE_EQ(result.predicted_ms, 20);
  EXPECT_DOUBLE_EQ(result.ranks[1].update, 5);
  EXPECT_NEAR(result.bubble_measured, 1 - 34.0 / 40, tiny);
}

TEST(Account, replicas_run_their_pipeline_rank) {
  const Account result = account(made_trace({.replicas = 2}));
  ASSERT_EQ(result.ranks.size(), 4u);
  EXPECT_EQ(result.ranks[1].stages, (std::vector<StageId>{StageId(0)}));
  EXPECT_EQ(result.ranks[2].stages, (std::vector<StageId>{StageId(1)}));
  EXPECT_NEAR(result.bubble_measured, 0.2, tiny);
}

TEST(Account, gaps_between_spans_are_other_and_gaps_outside_are_waits) {
  Trace trace = made_trace({});
  std::vector<Span>& spans = trace.ranks[1][0].spans;
  spans.erase(spans.begin());  // the wait for F0, so that F0 is the first span
  for (Span& span : spans)
    if (to_string(span.instruction) == "1F1") span.begin_ns += 250'000;
  const RankAccount part = account(trace).ranks[1];
  EXPECT_DOUBLE_EQ(part.wait_warmup, 1);
  EXPECT_DOUBLE_EQ(part.other, 0.25);
  EXPECT_DOUBLE_EQ(part.compute, 11.75);
  EXPECT_DOUBLE_EQ(part.wait_drain, 2);
}

TEST(Account, communication_has_its_own_part) {
  Trace trace = made_trace({});
  for (RankStep& step : trace.ranks[0])
    for (std::size_t i = 1; i < step.spans.size(); ++i)
      if (to_string(step.spans[i].instruction) == "0SEND_F1")
        step.spans[i].end_ns += 500'000, step.spans[i + 1].begin_ns += 500'000;
  const RankAccount part = account(trace).ranks[0];
  EXPECT_DOUBLE_EQ(part.communication, 0.5);
  EXPECT_DOUBLE_EQ(part.wait_warmup, 1.5);
}

TEST(Account, the_faster_rank_waits_in_the_steady_phase) {
  const StageCosts costs{.forward = {2, 1}, .input_grad = {4, 2}, .weight_grad = {0}};
  for (const char* name : {"1f1b", "gpipe"}) {
    const Account result =
        account(made_trace({.schedule = name, .shape = {.ranks = 2, .micro_batches = 8}, .costs = costs}));
    EXPECT_DOUBLE_EQ(result.ranks[0].wait_imbalance, 0) << name;
    EXPECT_DOUBLE_EQ(result.ranks[1].wait_warmup, 2) << name;
    EXPECT_GE(result.ranks[1].wait_imbalance, 7) << name;
  }
}

//   rank 0 | F0 F1 F2 F3 .... B0-- B1-- B2-- B3--     F = 1, B = 2, and nothing else: 15 units
//   rank 1 | .. F0 F1 F2 F3 B0-- B1-- B2-- B3-- ..
TEST(Account, the_phases_of_gpipe) {
  expect_phases(account(made_trace({.schedule = "gpipe"})), {{12, 3, 0, 0}, {12, 1, 0, 2}});
}

// Regression test: if other processes occupied the core of a waiting rank, the account called the delay imbalance.
TEST(Account, a_wait_after_the_arrival_is_woken_late) {
  Trace trace = made_trace({.costs = {.forward = {1, 2}, .input_grad = {2, 4}, .weight_grad = {0}, .message = 0.25}});
  const RankAccount before = account(trace).ranks[0];
  std::vector<Span>& spans = trace.ranks[0][0].spans;
  double late = 0;
  for (Span& span : spans) {
    if (span.activity != Activity::wait || span.end_ns - span.begin_ns < 1'000'000) continue;
    span.late_ns = 500'000;
    late += 0.5;
  }
  ASSERT_GT(late, 0);
  const RankAccount after = account(trace).ranks[0];
  EXPECT_DOUBLE_EQ(after.wait_late, late);
  EXPECT_DOUBLE_EQ(after.wait_message, before.wait_message) << "it was on its way before";
  EXPECT_DOUBLE_EQ(after.waiting(), before.waiting());
  EXPECT_LT(after.wait_imbalance + after.wait_warmup + after.wait_drain,
            before.wait_imbalance + before.wait_warmup + before.wait_drain);
}

TEST(Account, a_wait_during_the_transit_belongs_to_the_message) {
  const Account result = account(made_trace({.costs = {.message = 0.25}}));
  EXPECT_DOUBLE_EQ(result.measured_ms, 16);  // four messages are on the critical path
  EXPECT_DOUBLE_EQ(result.ranks[1].wait_warmup, 1);
  EXPECT_GT(result.ranks[1].wait_message, 0.25);
  for (const RankAccount& rank : result.ranks) EXPECT_NEAR(rank.waiting() + rank.compute, rank.total, tiny);
}

TEST(Account, reduce_and_norm_are_synchronisation) {
  Trace trace = made_trace({.costs = {.update = {5}}});
  for (auto& steps : trace.ranks) {
    Span& step = steps[0].spans.back();
    const Span norm{Instruction::step_wide(Op::norm, step.instruction.stage()), Activity::update, step.begin_ns,
                    step.begin_ns + 1'000'000, 0};
    step.begin_ns = norm.end_ns;
    steps[0].spans.insert(steps[0].spans.end() - 1, norm);
  }
  const Account result = account(trace);
  EXPECT_DOUBLE_EQ(result.ranks[0].synchronisation, 1);
  EXPECT_DOUBLE_EQ(result.ranks[0].update, 4);
  EXPECT_NEAR(result.bubble_measured, 1 - 34.0 / 40, tiny) << "it is busy all the same";
}

TEST(Account, between_steps_no_rank_is_busy) {
  Trace trace = made_trace({.steps = 5});
  EXPECT_DOUBLE_EQ(*account(trace).between_steps_ms, 0.001) << "as made";
  // The later begin of rank 1 is no gap. From the third one on, steps are late by 3, 7 and 3.
  for (RankStep& step : trace.ranks[1]) step.begin_ns += 500'000;
  for (std::size_t i = 2; i < 5; ++i)
    for (auto& steps : trace.ranks) delay(steps[i], i == 2 ? 3'000'000 : i == 3 ? 10'000'000 : 13'000'000);
  EXPECT_DOUBLE_EQ(*account(trace).between_steps_ms, 3.001) << "the median of 3, 7 and 3";
  for (auto& steps : trace.ranks) steps[3].step = 99;  // there was an evaluation pass between
  for (auto& steps : trace.ranks) steps.erase(steps.begin() + 3);
  EXPECT_DOUBLE_EQ(*account(trace).between_steps_ms, 3.001);
  EXPECT_FALSE(account(made_trace({})).between_steps_ms.has_value());
}

TEST(Account, tells_the_median_step_among_which_steps) {
  // The first of six steps does not count. The others are each faster than the one before.
  const Account result = account(made_trace({.steps = 6, .slowdown = -0.1}));
  EXPECT_EQ(result.step, 4u);
  EXPECT_EQ(result.steps, 5u);
  EXPECT_NEAR(result.measured_ms, 15 * 0.7, tiny);
  EXPECT_NEAR(result.shortest_ms, 15 * 0.5, tiny);
  EXPECT_NEAR(result.longest_ms, 15 * 0.9, tiny);
  EXPECT_NE(to_table(result).find("step 4, the median of 5 (7.50 to 13.50 ms): measured 10.50 ms"), std::string::npos);
}

/// The part to which an idle instant belongs.
double RankAccount::*phase_at(const RankStep& step, double instant) {
  double first_f = 1e300, last_f = -1, first_b = 1e300, last_b = -1;
  for (const Span& span : step.spans) {
    if (span.activity != Activity::compute) continue;
    const bool forward = span.instruction.op() == Op::forward;
    double& first = forward ? first_f : first_b;
    double& last = forward ? last_f : last_b;
    first = std::min(first, static_cast<double>(span.begin_ns));
    last = std::max(last, static_cast<double>(span.end_ns));
  }
  if (first_b < last_f)
    return instant < first_b  ? &RankAccount::wait_warmup
           : instant < last_f ? &RankAccount::wait_imbalance
                              : &RankAccount::wait_drain;
  if (instant < first_f || (instant >= last_f && instant < first_b)) return &RankAccount::wait_warmup;
  return instant < last_b ? &RankAccount::wait_imbalance : &RankAccount::wait_drain;
}

/// The part to which an instant of one rank's step belongs, by the definition in account.h.
double RankAccount::*part_at(const RankStep& step, double instant) {
  double first_note = 1e300, last_note = -1;
  for (const Span& span : step.spans) {
    first_note = std::min(first_note, static_cast<double>(span.begin_ns));
    last_note = std::max(last_note, static_cast<double>(span.end_ns));
  }
  const auto idle = phase_at(step, instant);
  if (instant < first_note || instant > last_note) return idle;
  for (const Span& span : step.spans) {
    if (instant < static_cast<double>(span.begin_ns) || instant >= static_cast<double>(span.end_ns)) continue;
    switch (span.activity) {
      case Activity::compute: return &RankAccount::compute;
      case Activity::update:
        return span.instruction.op() == Op::step ? &RankAccount::update : &RankAccount::synchronisation;
      case Activity::communicate: return &RankAccount::communication;
      case Activity::wait:
        if (instant >= static_cast<double>(span.end_ns - span.late_ns)) return &RankAccount::wait_late;
        return instant >= static_cast<double>(span.end_ns - span.late_ns - span.transit_ns) ? &RankAccount::wait_message
                                                                                            : idle;
    }
  }
  return &RankAccount::other;
}

/// A run with spans of any length, gaps between them, and some spans removed.
Trace any_run() {
  const auto name = *rc::gen::element<std::string>("1f1b", "gpipe", "sequential");
  Trace trace = made_trace({.schedule = name,
                            .shape = {.ranks = *rc::gen::inRange(1, 4), .micro_batches = *rc::gen::inRange(1, 5)},
                            .replicas = *rc::gen::inRange(1, 3)});
  if (*rc::gen::arbitrary<bool>()) {  // clipped
    trace.schedule = lower(strip(trace.schedule), LowerOptions{.norm = true});
    for (std::size_t world = 0; world < trace.ranks.size(); ++world) {
      std::vector<Span>& spans = trace.ranks[world][0].spans;
      Span norm = spans.back();
      norm.instruction = Instruction::step_wide(Op::norm, norm.instruction.stage());
      spans.insert(spans.end() - 1, norm);
    }
  }
  for (auto& steps : trace.ranks) {
    RankStep& step = steps[0];
    std::int64_t clock = step.begin_ns = *rc::gen::inRange(0, 40);
    for (Span& span : step.spans) {
      span.begin_ns = clock += *rc::gen::element(0, 0, 0, 3);
      span.end_ns = clock += *rc::gen::inRange(0, 20);
      if (span.activity != Activity::wait) continue;
      span.transit_ns = *rc::gen::inRange(0, 25);
      span.late_ns = *rc::gen::inRange(0, 25);
    }
    step.end_ns = clock + *rc::gen::inRange(0, 10);
    std::erase_if(step.spans,
                  [](const Span& span) { return span.activity != Activity::compute && *rc::gen::inRange(0, 4) == 0; });
  }
  return trace;
}

RC_GTEST_PROP(Account, every_instant_is_in_one_part, ()) {
  const Trace trace = any_run();
  const Account result = account(trace);
  std::int64_t begin = INT64_MAX, end = 0;
  for (const auto& steps : trace.ranks)
    for (const Span& span : steps[0].spans) {
      if (span.activity == Activity::compute) begin = std::min(begin, span.begin_ns);
      if (span.activity == Activity::compute || span.activity == Activity::update) end = std::max(end, span.end_ns);
    }
  RC_ASSERT(std::abs(result.measured_ms * 1e6 - static_cast<double>(end - begin)) < 1e-6);
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    RankAccount expected;
    for (std::int64_t ns = begin; ns < end; ++ns)
      expected.*part_at(trace.ranks[rank][0], static_cast<double>(ns) + 0.5) += 1e-6;
    const RankAccount& part = result.ranks[rank];
    for (const auto member :
         {&RankAccount::compute, &RankAccount::update, &RankAccount::synchronisation, &RankAccount::communication,
          &RankAccount::wait_message, &RankAccount::wait_late, &RankAccount::wait_warmup, &RankAccount::wait_imbalance,
          &RankAccount::wait_drain, &RankAccount::other})
      RC_ASSERT(std::abs(part.*member - expected.*member) < 1e-9);
    const double sum =
        part.compute + part.update + part.synchronisation + part.communication + part.waiting() + part.other;
    RC_ASSERT(std::abs(sum - part.total) < 1e-9);
    RC_ASSERT(part.total == result.measured_ms);
  }
}

TEST(MeasuredCosts, are_the_times_of_the_run) {
  const StageCosts made{{1.5, 2}, {2, 3}, {0.5, 1}, {0.25, 0.75}, 0.125};
  const StageCosts found = measured_costs(made_trace({.costs = made, .steps = 3}));
  EXPECT_EQ(found.forward, made.forward);
  EXPECT_EQ(found.input_grad, (std::vector<double>{2.5, 4})) << "B as a whole";
  EXPECT_EQ(found.weight_grad, (std::vector<double>{0, 0}));
  EXPECT_EQ(found.update, made.update);
  EXPECT_DOUBLE_EQ(found.message, made.message);
}

TEST(MeasuredCosts, are_medians_without_the_first_step) {
  Trace trace = made_trace({.steps = 4, .slowdown = 1});  // x1, x2, x3, x4
  EXPECT_EQ(measured_costs(trace).forward.front(), 3);
  for (auto& steps : trace.ranks) steps.pop_back();
  EXPECT_EQ(measured_costs(trace).forward.front(), 2.5) << "the mean of the middle two";
}

TEST(MeasuredCosts, are_means_within_a_step) {
  Trace trace = made_trace({.steps = 4});
  const StageCosts even = measured_costs(trace);
  for (auto& steps : trace.ranks)
    for (RankStep& step : steps)
      for (Span& span : step.spans)
        if (span.activity == Activity::compute && span.instruction.op() == Op::forward &&
            span.instruction.first() == MicroBatch(0))
          span.end_ns += 8'000'000;
  const StageCosts one_is_slow = measured_costs(trace);
  EXPECT_NEAR(one_is_slow.forward.front(), even.forward.front() + 8.0 / trace.schedule.micro_batches, 1e-9);
}

TEST(MeasuredCosts, include_split_and_fused_weight_gradients) {
  Trace trace;
  const StageId stage(0);
  Order order;
  for (const Op op : {Op::forward, Op::input_grad})
    for (const int i : {0, 1}) order.push_back(Instruction::compute(op, stage, MicroBatch(i)));
  order.push_back(Instruction::fused_weight_grad(stage, MicroBatch(0), MicroBatch(1)));
  for (const Op op : {Op::norm, Op::step}) order.push_back(Instruction::step_wide(op, stage));
  trace.schedule = {"split", 2, {Rank(0)}, {order}};
  RankStep step;
  for (const Instruction& instruction : order) {
    const std::int64_t begin = step.end_ns;
    step.end_ns += instruction.op() == Op::weight_grad ? 3'000'000 : 1'000'000;
    step.spans.push_back(
        {instruction, is_compute(instruction.op()) ? Activity::compute : Activity::update, begin, step.end_ns, 0});
  }
  trace.ranks = {{step}};
  const StageCosts found = measured_costs(trace);
  EXPECT_EQ(found.input_grad.front(), 1);
  EXPECT_EQ(found.weight_grad.front(), 1.5) << "per micro-batch";
  EXPECT_EQ(found.update.front(), 2) << "NORM and STEP together";
  EXPECT_EQ(found.message, 0) << "there was none";
  EXPECT_DOUBLE_EQ(account(trace).predicted_ms, 9);
}

TEST(Account, an_empty_trace_is_refused) {
  EXPECT_THROW(account(Trace{}), DataError);
  EXPECT_THROW(measured_costs(Trace{}), DataError);
}

TEST(AccountTable, shows_the_plans_and_the_simulated_prediction) {
  Trace trace = made_trace({});
  EXPECT_FALSE(account(trace).planned_ms);
  trace.settings[planned_ms_setting] = "12.25";
  EXPECT_EQ(account(trace).planned_ms, 12.25);
  EXPECT_TRUE(test::says(to_table(account(trace)), "predicted 15.00 ms from the times of this run's own instructions",
                         "\nthe plan predicted 12.25 ms before the run\n"));
  for (const char* no_number : {"", "soon", "12 ms", "-1", "nan", "inf"}) {
    trace.settings[planned_ms_setting] = no_number;
    EXPECT_FALSE(account(trace).planned_ms) << no_number;
  }
}

TEST(AccountTable, matches_the_expected_text) {
  const std::string table = to_table(account(made_trace({.costs = {.update = {0.5}}, .steps = 3})));
  // Columns are separated by blanks (base/text.h).
  EXPECT_EQ(std::regex_replace(table.substr(0, table.find("times in ms")), std::regex(" +"), " "),
            "rank stages compute update sync sending warm-up imbalance message woken-late drain other total\n"
            " 0 0 12.00 0.50 0.00 0.00 2.00 0.00 0.00 0.00 1.00 0.00 15.50\n"
            " 1 1 12.00 0.50 0.00 0.00 1.00 0.00 0.00 0.00 2.00 0.00 15.50\n"
            " all 77.4 % 3.2 % 0.0 % 0.0 % 9.7 % 0.0 % 0.0 % 0.0 % 9.7 % 0.0 % 100.0 %\n");
  EXPECT_TRUE(
      test::says(table, "\nbetween steps: 0.00 ms in which no rank had anything to do\n",
                 "\nstep 2, the median of 2 (15.50 to 15.50 ms): measured 15.50 ms, predicted 15.50 ms from ",
                 "\nbubble: measured 19.4 %, predicted 19.4 % (makespan); measured 19.4 %, predicted 19.4 % (span)"));
}

}  // namespace
}  // namespace penstock::account_test
