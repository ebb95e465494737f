#include "penstock/schedule/critical_path.h"

#include <gtest/gtest.h>

#include <rapidcheck.h>

#include "penstock/schedule/generate.h"
#include "penstock/schedule/lower.h"
#include "tests/schedule/random_schedule.h"

namespace penstock::critical_path_test {
namespace {

Simulation with_slots(const Schedule& schedule, const StageCosts& costs) {
  return simulate(schedule, costs, {.links = {}, .keep_slots = true});
}

std::string words(const std::vector<CriticalSlot>& path) {
  std::string text;
  for (const CriticalSlot& one : path) text += (one.waits_for_message ? "> " : " ") + to_string(one.slot.instruction);
  return text;
}

TEST(CriticalPath, follows_messages_and_ranks) {
  const Schedule schedule = lower(generate("gpipe", {.ranks = 2, .micro_batches = 2}));
  EXPECT_EQ(words(critical_path(schedule, with_slots(schedule, {.message = 0.5}))), " 0F0> 1F0 1F1 1B0> 0B0 0B1 0STEP");
  EXPECT_EQ(words(critical_path(schedule, with_slots(schedule, {.forward = {5, 1}, .message = 0.5}))),
            " 0F0 0F1> 1F1 1B0> 0B0 0B1 0STEP");
}

TEST(CriticalPath, of_an_empty_simulation_is_empty) {
  const Schedule schedule = generate("gpipe", {.ranks = 2, .micro_batches = 2});
  EXPECT_TRUE(critical_path(schedule, simulate(schedule, {})).empty());
}

TEST(CriticalPath, has_no_gap_but_messages_and_covers_the_makespan) {
  EXPECT_TRUE(rc::check([] {
    const int stages = *rc::gen::inRange(1, 6);
    const Schedule schedule = lower(working_schedule(stages, chain(stages)));
    const double message = *rc::gen::inRange(0, 3);
    const Simulation simulation = with_slots(schedule, {.message = message});
    const auto path = critical_path(schedule, simulation);
    RC_ASSERT(path.front().slot.begin == 0);
    RC_ASSERT(path.back().slot.end == simulation.makespan);
    for (std::size_t i = 1; i < path.size(); ++i) {
      const double gap = path[i].slot.begin - path[i - 1].slot.end;
      RC_ASSERT(gap == (path[i].waits_for_message ? message : 0));
      RC_ASSERT((path[i].rank != path[i - 1].rank) == path[i].waits_for_message);
    }
  }));
}

}  // namespace
}  // namespace penstock::critical_path_test
