#include "penstock/trace/pictures.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/schedule/schedule.h"

namespace penstock::schedule_json_test {
namespace {

using nlohmann::json;

json document(const Schedule& schedule, const StageCosts& costs = StageCosts::unit()) {
  return json::parse(schedule_json(schedule, costs));
}

/// The slot of `instruction`, with its dependencies as instructions.
json slot(const json& made, const std::string& instruction) {
  for (json found : made["slots"]) {
    if (found["word"] != instruction) continue;
    for (json& needed : found["needs"]) needed = made["slots"][needed.get<std::size_t>()]["word"];
    return found;
  }
  return nullptr;
}

TEST(ScheduleJson, begins_with_its_version) {
  const std::string text = schedule_json(generate("gpipe", {.ranks = 1, .micro_batches = 1}), StageCosts::unit());
  EXPECT_EQ(text.substr(0, 47), "{\n\"format\": \"penstock schedule\",\n\"version\": 1,\n");
}

TEST(ScheduleJson, contains_shape_costs_and_results) {
  const Schedule schedule = lower(generate("1f1b", {.ranks = 2, .micro_batches = 4}));
  const StageCosts costs{.forward = {1, 2}, .message = 0.5, .weight_share = 0.25, .overhead = 0.125};
  const Simulation expected = simulate(schedule, costs);
  const json made = document(schedule, costs);
  EXPECT_EQ(made["name"], "1f1b");
  EXPECT_EQ(made["ranks"], 2);
  EXPECT_EQ(made["stages"], 2);
  EXPECT_EQ(made["micro_batches"], 4);
  EXPECT_EQ(made["rank_of_stage"], (json{0, 1}));
  EXPECT_EQ(made["costs"], (json{{"forward", {1, 2}},
                                 {"input_grad", {1}},
                                 {"weight_grad", {1}},
                                 {"update", {0}},
                                 {"message", 0.5},
                                 {"weight_share", 0.25},
                                 {"overhead", 0.125}}));
  EXPECT_EQ(made["makespan"], expected.makespan);
  EXPECT_EQ(made["span"], expected.span);
  EXPECT_EQ(made["bubble_makespan"], expected.bubble_makespan);
  EXPECT_EQ(made["bubble_span"], expected.bubble_span);
  EXPECT_EQ(made["peak_activations"], (json{2, 1}));
  EXPECT_EQ(made["busy"], expected.busy);
}

TEST(ScheduleJson, slots_are_the_instructions_with_their_times) {
  const json made = document(lower(generate("1f1b", {.ranks = 2, .micro_batches = 4})), {.update = {3}});
  ASSERT_EQ(made["slots"].size(), 18) << "8 F, 8 B, 2 STEP";
  EXPECT_EQ(slot(made, "1B0"), (json{{"rank", 1},
                                     {"word", "1B0"},
                                     {"op", "B"},
                                     {"stage", 1},
                                     {"micro_batches", {0, 0}},
                                     {"begin", 2},
                                     {"end", 4},
                                     {"needs", {"1F0"}}}));
  EXPECT_EQ(slot(made, "0STEP"), (json{{"rank", 0},
                                       {"word", "0STEP"},
                                       {"op", "STEP"},
                                       {"stage", 0},
                                       {"begin", 15},
                                       {"end", 18},
                                       {"needs", {"0B0", "0B1", "0B2", "0B3"}}}));
}

TEST(ScheduleJson, dependencies_cross_messages_chunks_and_fused_instructions) {
  const json made = document(lower(read_schedule(R"(penstock schedule 1
name rich
ranks 2
stages 3
micro_batches 2
rank_of_stage 0 1 1
rank 0: 0F0 0F1 0I0 0I1 0W0-1
rank 1: 1F0 2F0 (1F1;2I0)OVERLAP_F_B 2F1 2I1 2W0-1 1I0 1W0 1B1
)")));
  EXPECT_EQ(slot(made, "1F1")["needs"], (json{"0F1"}));
  EXPECT_EQ(slot(made, "2F0")["needs"], (json{"1F0"}));
  EXPECT_EQ(slot(made, "0I0")["needs"], (json{"0F0", "1I0"}));
  EXPECT_EQ(slot(made, "0I1")["needs"], (json{"0F1", "1B1"}));
  EXPECT_EQ(slot(made, "2W0-1")["needs"], (json{"2I0", "2I1"}));
  EXPECT_EQ(slot(made, "2W0-1")["micro_batches"], (json{0, 1}));
  EXPECT_EQ(slot(made, "2STEP")["needs"], (json{"2W0-1"}));
  EXPECT_EQ(slot(made, "1F1")["overlaps_next"], true);
  EXPECT_FALSE(slot(made, "2I0").contains("overlaps_next"));
}

TEST(ScheduleJson, a_name_that_is_not_UTF_8_is_replaced) {
  Schedule schedule = generate("gpipe", {.ranks = 1, .micro_batches = 1});
  schedule.name = "a\"b\xff";
  EXPECT_EQ(document(schedule)["name"], "a\"b\xef\xbf\xbd");
}

TEST(ScheduleJson, refuses_a_deadlock) {
  Schedule schedule = generate("gpipe", {.ranks = 2, .micro_batches = 1});
  std::swap(schedule.orders[1][0], schedule.orders[1][1]);
  EXPECT_THROW(document(schedule), ScheduleError);
}

}  // namespace
}  // namespace penstock::schedule_json_test
