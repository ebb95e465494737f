#include "penstock/schedule/simulate.h"

#include <gtest/gtest.h>

#include <limits>

#include "penstock/base/error.h"
#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "penstock/schedule/text.h"
#include "penstock/schedule/weight_gradients.h"
#include "tests/schedule/random_schedule.h"

namespace penstock::simulate_test {
namespace {

StageCosts costs_of(double f, double i, double w) { return {.forward = {f}, .input_grad = {i}, .weight_grad = {w}}; }

TEST(Simulate, closed_forms_without_communication) {
  const double f = 3, b = 2 + 5;
  const StageCosts costs = costs_of(f, 2, 5);
  for (int p = 1; p <= 6; ++p)
    for (int m = 1; m <= 9; ++m) {
      const ScheduleShape shape{.ranks = p, .micro_batches = m};
      for (const Schedule& schedule : {generate("gpipe", shape), generate("1f1b", shape)}) {
        const Simulation run = simulate(schedule, costs);
        EXPECT_DOUBLE_EQ(run.makespan, (m + p - 1) * (f + b)) << schedule.name << " p " << p << " m " << m;
        EXPECT_DOUBLE_EQ(run.bubble_makespan, (p - 1.0) / (m + p - 1)) << schedule.name;
        EXPECT_EQ(run.busy, std::vector<double>(static_cast<std::size_t>(p), m * (f + b)));
      }
      EXPECT_DOUBLE_EQ(simulate(generate("sequential", shape), costs).makespan, m * p * (f + b));
      EXPECT_DOUBLE_EQ(simulate(generate("forward-only", shape), costs).makespan, (m + p - 1) * f);
      for (int s = 0; s < p; ++s) {
        const auto rank = static_cast<std::size_t>(s);
        EXPECT_EQ(simulate(generate("gpipe", shape), costs).peak_activations[rank], m);
        EXPECT_EQ(simulate(generate("1f1b", shape), costs).peak_activations[rank], std::min(m, p - s));
        EXPECT_EQ(simulate(generate("sequential", shape), costs).peak_activations[rank], 1);
        EXPECT_EQ(simulate(generate("forward-only", shape), costs).peak_activations[rank], 1);
      }
    }
}

Schedule split() {
  return read_schedule(
      "penstock schedule 1\nname\nranks 2\nstages 2\nmicro_batches 2\nrank_of_stage 0 1\n"
      "rank 0: 0F0 0F1 0I0 0I1 0W0-1\nrank 1: 1F0 1I0 1F1 1I1 1W0 1W1\n");
}

TEST(Simulate, instructions_start_when_their_dependencies_are_met) {
  StageCosts costs{.forward = {1, 2}, .input_grad = {3}, .weight_grad = {4, 5}, .update = {6}, .message = 0.5};
  const Simulation run = simulate(lower(split()), costs, {.links = {}, .keep_slots = true});
  std::string times;
  for (const auto& rank : run.slots) {
    for (const Slot& slot : rank) times += say(to_string(slot.instruction), " ", slot.begin, "-", slot.end, "  ");
    times += "\n";
  }
  EXPECT_EQ(times,
            "0F0 0-1  0F1 1-2  0I0 7-10  0I1 12-15  0W0-1 15-23  0STEP 23-29  \n"
            "1F0 1.5-3.5  1I0 3.5-6.5  1F1 6.5-8.5  1I1 8.5-11.5  1W0 11.5-16.5  1W1 16.5-21.5  1STEP 21.5-27.5  \n");
  EXPECT_EQ(run.makespan, 29);
  EXPECT_EQ(run.span, 29);
  EXPECT_EQ(run.busy, (std::vector<double>{22, 26}));
  EXPECT_DOUBLE_EQ(run.bubble_makespan, 1 - 48.0 / 58);
}

TEST(Simulate, a_message_waits_until_its_link_is_free) {
  StageCosts costs{
      .forward = {1}, .input_grad = {1}, .weight_grad = {1}, .update = {0}, .message = 3, .message_gap = 3};
  const auto times_of = [&](const Schedule& schedule) {
    std::string times;
    for (const auto& rank : simulate(schedule, costs, {.links = {}, .keep_slots = true}).slots)
      for (const Slot& slot : rank)
        if (slot.instruction.op() != Op::step) times += say(to_string(slot.instruction), " ", slot.begin, "  ");
    return times;
  };
  // Values leave rank 0 at 1, and at 4 instead of 2; gradients leave rank 1 at 6 and 9.
  const std::string expected = "0F0 0  0F1 1  0I0 9  0I1 12  0W0-1 13  1F0 4  1I0 5  1F1 7  1I1 8  1W0 9  1W1 10  ";
  EXPECT_EQ(times_of(split()), expected);
  EXPECT_EQ(times_of(lower(split())), expected);
  costs.message_gap = 0;
  EXPECT_EQ(times_of(split()), "0F0 0  0F1 1  0I0 9  0I1 11  0W0-1 12  1F0 4  1I0 5  1F1 6  1I1 7  1W0 8  1W1 9  ");
}

TEST(Simulate, a_slow_link_bounds_the_step) {
  // Each of ten messages occupies the link for 4, in which rank 0 computes four micro-batches.
  const StageCosts costs{.forward = {1}, .update = {0}, .message = 5, .message_gap = 4};
  const ScheduleShape shape{.ranks = 2, .micro_batches = 10};
  EXPECT_EQ(simulate(generate("forward-only", shape), costs).makespan, 1 + 9 * 4 + 5 + 1);
  // Both directions at the same time.
  EXPECT_EQ(simulate(generate("gpipe", shape), costs).makespan, 1 + 9 * 4 + 5 + 1 + 2 + 9 * 4 + 5 + 2);
}

TEST(Simulate, messages_differ_by_boundary_and_direction) {
  const StageCosts costs{.messages_forward = {{2}, {4}}, .messages_backward = {{8}, {16}}};
  EXPECT_EQ(simulate(generate("forward-only", {3, 1, 1}), costs).makespan, 3 + 2 + 4);
  EXPECT_EQ(simulate(generate("1f1b", {3, 1, 1}), costs).makespan, 9 + 2 + 16 + 2 + 8 + 2);
  const StageCosts with_gap{.messages_forward = {{2, 2}, {4, 4}}, .messages_backward = {{8}, {16}}};
  EXPECT_EQ(simulate(generate("forward-only", {3, 2, 1}), with_gap).makespan, 9 + 4);
  EXPECT_THROW(simulate(generate("1f1b", {4, 1, 1}), costs), ConfigError);
}

TEST(Simulate, sending_occupies_the_rank_for_a_share_of_the_message) {
  const StageCosts costs{.message = 2, .terms = {.send_share = 1}};
  const Simulation run = simulate(generate("1f1b", {2, 1, 1}), costs);
  EXPECT_EQ(run.makespan, 1 + (2 + 2) + 1 + 2 + (2 + 2) + 2);
  EXPECT_EQ(run.busy, (std::vector<double>{1 + 2 + 2, 1 + 2 + 2}));
}

TEST(Simulate, gradients_are_summed_on_the_rank_or_beside_it) {
  const Schedule two_stages = read_schedule(
      "penstock schedule 1\nname\nranks 1\nstages 2\nmicro_batches 1\nrank_of_stage 0 0\n"
      "rank 0: 0F0 1F0 1B0 0B0\n");
  StageCosts costs{.update = {1}, .reduce = {3}};
  EXPECT_EQ(simulate(two_stages, costs).makespan, 6 + 2 * 3 + 2);
  costs.reduce_overlaps = true;  // stage 1 from 4 to 7, stage 0 from 7 to 10
  EXPECT_EQ(simulate(two_stages, costs).makespan, 10 + 2);
}

TEST(Simulate, terms_of_a_whole_step) {
  const StageCosts costs{.terms = {.slowdown = 0.5, .per_step = 10}};
  const Simulation run = simulate(generate("1f1b", {1, 4, 1}), costs);
  EXPECT_EQ(run.makespan, 4 * 3 * 1.5 + 10);
  EXPECT_EQ(run.span, run.makespan);
}

/// A schedule of one rank with `instructions` for four micro-batches.
Schedule alone(const std::string& instructions) {
  return read_schedule(
      "penstock schedule 1\nname\nranks 1\nstages 1\nmicro_batches 4\nrank_of_stage 0\nrank 0: " + instructions + "\n");
}

// A single W takes 5 and one over all four micro-batches 4 * 2 = 8, which is 4 and 1 per micro-batch. A W over two
// micro-batches therefore takes 6, and one over three takes 7.
TEST(Simulate, the_cost_of_a_grouped_w_is_interpolated) {
  const StageCosts costs{.forward = {0}, .input_grad = {0}, .weight_grad = {5}, .weight_grad_fused = {2}};
  const std::string before = "0F0 0F1 0F2 0F3 0I0 0I1 0I2 0I3 ";
  EXPECT_EQ(simulate(alone(before + "0W0 0W1 0W2 0W3"), costs).makespan, 20);
  EXPECT_EQ(simulate(alone(before + "0W0-3"), costs).makespan, 8);
  EXPECT_DOUBLE_EQ(simulate(alone(before + "0W0-1 0W2-3"), costs).makespan, 6 + 6);
  EXPECT_DOUBLE_EQ(simulate(alone(before + "0W0-2 0W3"), costs).makespan, 7 + 5);
  StageCosts with_overhead = costs;
  with_overhead.overhead = 0.5;
  EXPECT_EQ(simulate(alone(before + "0W0-3"), with_overhead).makespan, 8 + 9 * 0.5);
}

// Parameters stay in the cache from an F, I or B to an F or I, gradients from a W or B to a W. A B uses both.
TEST(Simulate, caching_saves_time_after_an_instruction_of_the_same_stage) {
  const StageCosts costs{.forward = {10},
                         .input_grad = {20},
                         .weight_grad = {30},
                         .weight_grad_fused = {30},
                         .backward = {60},
                         .forward_cache_saving = {1},
                         .input_grad_cache_saving = {2},
                         .weight_grad_cache_saving = {4}};
  const auto takes = [&](const std::string& instructions) { return simulate(alone(instructions), costs).makespan; };
  EXPECT_EQ(takes("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"), 40 - 3 * 1 + 240 - 4 * 2 - 3 * 4);
  EXPECT_EQ(takes("0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3"), 40 - 3 * 1 + 240 - 4 * 2);
  EXPECT_EQ(takes("0F0 0F1 0F2 0F3 0I0 0I1 0I2 0I3 0W0 0W1 0W2-3"), 40 - 3 * 1 + 80 - 4 * 2 + 120 - 2 * 4);
  EXPECT_EQ(takes("0F0 0I0 0W0 0F1 0I1 0W1 0F2 0I2 0W2 0F3 0I3 0W3"), 40 + 80 - 4 * 2 + 120);
  StageCosts much = costs;
  much.weight_grad_cache_saving = {1000};
  EXPECT_EQ(simulate(alone("0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"), much).makespan, 40 - 3 * 1 + 60 - 2)
      << "no instruction takes less than nothing";
}

TEST(Simulate, a_fused_w_has_a_cost_per_stage) {
  StageCosts costs{.forward = {0}, .input_grad = {0}, .weight_grad = {4, 5}, .weight_grad_fused = {3, 1}};
  const Schedule fused = fuse_w(split());
  EXPECT_EQ(simulate(fused, costs).busy, (std::vector<double>{2 * 3, 2 * 1}));
  EXPECT_EQ(simulate(split(), costs).busy, (std::vector<double>{2 * 3, 2 * 5}));
  costs.weight_grad_fused = {2};
  EXPECT_EQ(simulate(fused, costs).busy, (std::vector<double>{4, 4}));
}

TEST(Simulate, an_unsplit_b_has_its_own_cost) {
  const StageCosts costs{.forward = {1}, .input_grad = {2}, .weight_grad = {2}, .backward = {3, 3.5}};
  const ScheduleShape shape{.ranks = 2, .micro_batches = 3};
  EXPECT_EQ(simulate(generate("1f1b", shape), costs).busy, (std::vector<double>{3 * 4, 3 * 4.5}));
  EXPECT_EQ(simulate(generate("1f1b-early", shape), costs).busy, (std::vector<double>{3 * 5, 3 * 5}));
}

TEST(Simulate, updates_are_the_same_for_lowered_and_other_schedules) {
  const StageCosts costs{.forward = {1}, .input_grad = {2}, .weight_grad = {0}, .update = {1, 7}};
  const Schedule schedule = generate("gpipe", {.ranks = 2, .micro_batches = 2});
  // Rank 1 begins at 1, ends its last B at 7 and its update at 14; rank 0 ends its last B at 9 and its update at 10.
  for (const Schedule& one : {schedule, lower(schedule)}) {
    EXPECT_EQ(simulate(one, costs).makespan, 14);
    EXPECT_EQ(simulate(one, costs).busy, (std::vector<double>{6 + 1, 6 + 7}));
  }
  const Schedule forward = generate("forward-only", {.ranks = 2, .micro_batches = 2});
  EXPECT_EQ(simulate(forward, costs).makespan, 3);
}

// F takes 1, B takes 2, the update of stage 3 takes 4 and overlaps with the work of rank 1:
//
//   rank 0 | 0F0 .   .   3F0 3B0-----   3STEP   0B0-----  0STEP
//   rank 1 |     1F0 2F0            2B0----- 1B0-----
TEST(Simulate, an_update_overlaps_with_the_work_of_other_ranks) {
  const StageCosts costs{.forward = {1}, .input_grad = {2}, .weight_grad = {0}, .update = {1, 0, 0, 4}};
  const Schedule schedule = read_schedule(
      "penstock schedule 1\nname v\nranks 2\nstages 4\nmicro_batches 1\n"
      "rank_of_stage 0 1 1 0\nrank 0: 0F0 3F0 3B0 0B0\nrank 1: 1F0 2F0 2B0 1B0\n");
  for (const Schedule& one : {schedule, lower(schedule)}) EXPECT_EQ(simulate(one, costs).makespan, 4 + 4 * 2 + 1);
}

// From its I to its W, a micro-batch counts as the weight share in peak_activations, and as 1 in peak_contexts.
TEST(Simulate, counts_activations_and_contexts) {
  StageCosts costs;
  const std::vector<std::pair<double, std::vector<double>>> cases{{0.5, {2, 1.5}}, {1, {2, 2}}, {0, {2, 1}}};
  for (const auto& [share, held] : cases) {
    costs.weight_share = share;
    const Simulation run = simulate(split(), costs);
    EXPECT_EQ(run.peak_activations, held) << share;
    EXPECT_EQ(run.peak_contexts, (std::vector<int>{2, 2})) << share;
  }
  costs.weight_share = 1.5;
  EXPECT_THROW(simulate(split(), costs), ConfigError);
}

TEST(Simulate, the_span_begins_with_the_first_instruction_of_the_rank) {
  const Simulation run = simulate(generate("forward-only", {.ranks = 2, .micro_batches = 4}), StageCosts::unit());
  EXPECT_EQ(run.makespan, 5);
  EXPECT_EQ(run.span, 4);
  EXPECT_EQ(run.bubble_span, 0);
  EXPECT_DOUBLE_EQ(run.bubble_makespan, 0.2);
}

TEST(Simulate, a_send_starts_at_its_position) {
  const std::string head = "penstock schedule 1\nname\nranks 2\nstages 2\nmicro_batches 1\nrank_of_stage 0 1\n";
  const std::string sender = "rank 0: 0F0 0SEND_F0 0RECV_B0 0B0\n";
  const Schedule early = read_schedule(head + sender + "rank 1: 1RECV_F0 1F0 1I0 1SEND_B0 1W0\n");
  const Schedule late = read_schedule(head + sender + "rank 1: 1RECV_F0 1F0 1I0 1W0 1SEND_B0\n");
  EXPECT_EQ(simulate(early, StageCosts::unit()).makespan, 5);
  EXPECT_EQ(simulate(late, StageCosts::unit()).makespan, 6);
}

TEST(Simulate, a_chunk_counts_as_a_share_of_a_micro_batch) {
  const Schedule v = read_schedule(
      "penstock schedule 1\nname\nranks 1\nstages 2\nmicro_batches 2\nrank_of_stage 0 0\n"
      "rank 0: 0F0 1F0 0F1 1B0 1F1 1B1 0B0 0B1\n");
  EXPECT_EQ(simulate(v, StageCosts::unit()).peak_activations, std::vector<double>{1.5});
}

TEST(Simulate, without_costs_there_is_no_bubble) {
  const Simulation run = simulate(generate("gpipe", {.ranks = 2, .micro_batches = 2}), costs_of(0, 0, 0));
  EXPECT_EQ(run.makespan, 0);
  EXPECT_EQ(run.bubble_makespan, 0);
  EXPECT_EQ(run.bubble_span, 0);
}

TEST(Simulate, refuses_invalid_costs) {
  const Schedule schedule = generate("gpipe", {.ranks = 3, .micro_batches = 1});
  EXPECT_THROW(simulate(schedule, {.forward = {1, 2}}), ConfigError);
  EXPECT_THROW(simulate(schedule, {.weight_grad = {}}), ConfigError);
  EXPECT_THROW(simulate(schedule, {.input_grad = {-1}}), ConfigError);
  EXPECT_THROW(simulate(schedule, {.update = {std::numeric_limits<double>::infinity()}}), ConfigError);
  EXPECT_THROW(simulate(schedule, {.message = std::numeric_limits<double>::quiet_NaN()}), ConfigError);
}

TEST(Simulate, refuses_schedules_that_cannot_run) {
  Schedule schedule = generate("gpipe", {.ranks = 2, .micro_batches = 2});
  std::swap(schedule.orders[1].front(), schedule.orders[1].back());
  EXPECT_THROW(simulate(schedule, StageCosts::unit()), ScheduleError);
  schedule.orders[1].pop_back();
  EXPECT_THROW(simulate(schedule, StageCosts::unit()), ScheduleError);
  schedule.micro_batches = 2000000000;
  EXPECT_THROW(simulate(schedule, StageCosts::unit()), ScheduleError);
}

TEST(Simulate, lowering_changes_no_result) {
  EXPECT_TRUE(rc::check("simulate(lower(x)) == simulate(x)", [] {
    const int stages = *rc::gen::inRange(1, 6);
    const Links links = any_links(stages);
    const Schedule schedule = working_schedule(stages, links);
    const auto costs = [&] {
      const auto quarters = rc::gen::map(rc::gen::inRange(0, 40), [](int n) { return n / 4.0; });
      return *rc::gen::container<std::vector<double>>(static_cast<std::size_t>(stages), quarters);
    };
    StageCosts all{costs(), costs(), costs(), costs(), *rc::gen::inRange(0, 9) / 4.0};
    if (*rc::gen::arbitrary<bool>()) all.weight_grad_fused = costs();
    if (*rc::gen::arbitrary<bool>()) all.backward = costs();
    const SimulateOptions options{.links = links, .keep_slots = false};
    const Simulation plain = simulate(schedule, all, options);
    const Simulation lowered = simulate(lower(schedule, links), all, options);
    RC_ASSERT(plain.makespan == lowered.makespan);
    RC_ASSERT(plain.span == lowered.span);
    RC_ASSERT(plain.busy == lowered.busy);
    RC_ASSERT(plain.peak_activations == lowered.peak_activations);
    RC_ASSERT(plain.bubble_span == lowered.bubble_span);
  }));
}

}  // namespace
}  // namespace penstock::simulate_test
