#include "penstock/trace/pictures.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/schedule/schedule.h"
#include "penstock/trace/timeline.h"
#include "tests/base/error_text.h"
#include "tests/trace/golden.h"
#include "tests/trace/made_trace.h"

namespace penstock::pictures_test {
namespace {

int occurrences(const std::string& text, std::string_view part) {
  int found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Expects each of `parts` once.
void expect_once(const std::string& picture, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) EXPECT_EQ(occurrences(picture, part), 1) << part;
}

constexpr ScheduleShape two_by_four{.ranks = 2, .micro_batches = 4};

/// A schedule whose name has the characters that a picture must not contain as they are.
Schedule with_name(const std::string& name) {
  Schedule schedule = generate("gpipe", {.ranks = 1, .micro_batches = 1});
  schedule.name = name;
  return schedule;
}

TEST(StepSvg, matches_the_golden_file) {
  expect_golden(TESTS_FOLDER "/trace/goldens/step.svg",
                step_svg(made_trace({.costs = {{1.1}, {1.2}, {0.9}, {0.3}, 0.05}, .steps = 3, .slowdown = 0.1})));
}

TEST(StepSvg, every_instruction_is_drawn_twice_with_its_micro_batch) {
  const std::string picture = step_svg(made_trace({.costs = {.update = {2}}}));
  for (const char* instruction : {"0F0", "0B3", "1F2", "1B0", "0STEP", "1STEP"})
    EXPECT_EQ(occurrences(picture, say("<title>", instruction, ": ")), 2) << instruction;
  EXPECT_EQ(occurrences(picture, ">3</text>"), 8) << "F3 and B3 of both ranks, predicted and measured";
  EXPECT_EQ(occurrences(picture, "<title>"), 36);
}

TEST(StepSvg, titles_name_both_times) {
  Trace trace = made_trace({});
  trace.schedule.name = "<&\">\n";
  expect_once(step_svg(trace),
              {">predicted with the times measured below: 15 ms, idle 20 %</text>", ">measured 15 ms, idle 20 %</text>",
               ">2 pipeline ranks, 2 stages, 4 micro-batches; step 1, the median of those traced<",
               ">&lt;&amp;&quot;&gt; : one training step"});
  EXPECT_THROW(step_svg(Trace{}), DataError);
}

TEST(StepSvg, labels_that_do_not_fit_are_left_out) {
  const std::string picture = step_svg(made_trace({.shape = {.ranks = 2, .micro_batches = 300}}));
  EXPECT_EQ(occurrences(picture, ">299</text>"), 0);
  EXPECT_EQ(occurrences(picture, "<title>0F299: "), 2);
}

TEST(StepSvg, messages_that_take_time_are_drawn) {
  Trace trace = made_trace({});
  EXPECT_EQ(occurrences(step_svg(trace), ">messages</text>"), 0);
  for (RankStep& step : trace.ranks[0])
    for (std::size_t i = 0; i + 1 < step.spans.size(); ++i)
      if (to_string(step.spans[i].instruction) == "0SEND_F1") {
        step.spans[i].end_ns += 500'000;
        step.spans[i + 1].begin_ns += 500'000;
      }
  EXPECT_EQ(occurrences(step_svg(trace), ">messages</text>"), 1);
}

TEST(StepSvg, a_row_per_world_rank_and_per_predicted_rank) {
  const std::string picture = step_svg(made_trace({.shape = {.ranks = 2, .micro_batches = 1}, .replicas = 2}));
  EXPECT_EQ(occurrences(picture, ">rank 1</text>"), 2);
  expect_once(picture, {">rank 3</text>", ">stage 1, replica 1</text>"});
}

TEST(SvgCanvas, numbers_have_no_trailing_zeros) {
  EXPECT_EQ(shortened(2), "2");
  EXPECT_EQ(shortened(2.5), "2.5");
  EXPECT_EQ(shortened(1.0 / 3), "0.33");
  EXPECT_EQ(shortened(100, 0), "100");
  EXPECT_EQ(shortened(-0.001), "0");
}

TEST(SvgCanvas, colours_are_lightened) {
  constexpr Colour blue{0x10, 0x20, 0xf0};
  EXPECT_EQ(blue.text(), "#1020f0");
  EXPECT_EQ(blue.lightened(1).text(), "#ffffff");
  EXPECT_EQ(blue.lightened(0).text(), "#1020f0");
}

/// A schedule with two chunks per rank, an overlap pair and a fused W.
constexpr const char* rich = R"(penstock schedule 1
name rich
ranks 1
stages 2
micro_batches 2
rank_of_stage 0 0
rank 0: 0F0 1F0 (0F1;1I0)OVERLAP_F_B 1F1 1I1 1W0-1 0I0 0I1 0W0-1
)";

std::string drawn(const Schedule& schedule, const StageCosts& costs = StageCosts::unit()) {
  return schedule_svg(lower(schedule), costs);
}

TEST(ScheduleSvg, matches_the_golden_file) {
  expect_golden(TESTS_FOLDER "/trace/goldens/schedule.svg",
                drawn(generate("1f1b", two_by_four), {.update = {0.5}, .message = 0.25}));
}

TEST(ScheduleSvg, every_instruction_is_a_box_at_its_time) {
  const std::string picture = drawn(generate("1f1b", two_by_four));
  EXPECT_EQ(occurrences(picture, "<title>"), 16) << "4 F and 4 B on both ranks; no STEP, which takes no time";
  EXPECT_EQ(occurrences(picture, "<title>1B0: 2 to 4</title>"), 1);
  EXPECT_EQ(occurrences(picture, ">3</text>"), 4);
  EXPECT_EQ(occurrences(picture, "update"), 0);
}

TEST(ScheduleSvg, the_title_contains_the_results) {
  expect_once(drawn(generate("1f1b", two_by_four), {.forward = {1, 2}}),
              {">1f1b: p = 2, v = 1, m = 4</text>",
               ">makespan 19; bubble 26.32 % of the makespan, 26.32 % of the span; at most 2 live activations on a "
               "rank, in micro-batches of a whole rank</text>",
               ">F = 1 to 2, I = 1, W = 1</text>"});  // and the costs that differ from the default
  expect_once(drawn(generate("zb-h1", two_by_four), {.message = 0.5, .weight_share = 0.4, .overhead = 0.125}),
              {">F = 1, I = 1, W = 1, message = 0.5, overhead = 0.125, weight share = 0.4</text>"});
  expect_once(drawn(with_name("<&\">\n")), {">&lt;&amp;&quot;&gt; : p = 1"});
}

TEST(ScheduleSvg, an_update_with_a_cost_is_a_thin_box) {
  const std::string picture = drawn(generate("1f1b", two_by_four), {.update = {1}});
  expect_once(picture, {"<title>0STEP: 15 to 16</title>", ">update</text>"});
  EXPECT_EQ(occurrences(picture, "height=\"26\" fill=\"#888888\""), 0);
  EXPECT_EQ(occurrences(picture, "height=\"13\" fill=\"#888888\""), 2);
}

TEST(ScheduleSvg, draws_fused_instructions_pairs_and_chunks) {
  const std::string picture = drawn(read_schedule(rich));
  EXPECT_EQ(occurrences(picture, ">0-1</text>"), 2);
  // One frame, around 0F1 and 1I0, from 2 to 4 of 12.
  expect_once(picture, {"<title>0W0-1: 10 to 12</title>", "stroke-width=\"2\"", "<title>0I1: ", "<title>1I1: ",
                        "<rect x=\"238.67\" y=\"111\" width=\"126.67\" height=\"26\" fill=\"none\"",
                        ">lighter: a later stage of its rank; framed: may overlap</text>"});
  // Both shades of I are in the boxes and in the legend.
  EXPECT_EQ(occurrences(picture, "fill=\"#f6cd5a\""), 2 + 1);
  EXPECT_EQ(occurrences(picture, "fill=\"#fae4a4\""), 2 + 1);
}

TEST(ScheduleSvg, refuses_too_many_boxes_and_invalid_costs_and_schedules) {
  const Schedule large = generate("gpipe", {.ranks = 10, .micro_batches = 1001});
  EXPECT_TRUE(test::says(test::error_text<ConfigError>([&] { schedule_svg(large, StageCosts::unit()); }),
                         "20020 boxes: at most 20000", "in an SVG", "use HTML"));
  Schedule schedule = generate("gpipe", {.ranks = 2, .micro_batches = 1});
  EXPECT_THROW(schedule_svg(schedule, {.forward = {1, 2, 3}}), ConfigError);
  std::swap(schedule.orders[1][0], schedule.orders[1][1]);
  EXPECT_THROW(schedule_svg(schedule, StageCosts::unit()), ScheduleError);
  EXPECT_THROW(schedule_json(schedule, StageCosts::unit()), ScheduleError);
}

using nlohmann::json;

/// The JSON in the script element with this id.
json data_of(const std::string& page, const std::string& id) {
  const std::string opening = "<script type=\"application/json\" id=\"" + id + "\">";
  const std::size_t begin = page.find(opening) + opening.size();
  return json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

TEST(ScheduleHtml, contains_the_schedule_json_and_needs_no_other_file) {
  const Schedule schedule = lower(generate("1f1b", two_by_four));
  const std::string page = schedule_html(schedule, StageCosts::unit());
  EXPECT_EQ(data_of(page, "schedule"), json::parse(schedule_json(schedule, StageCosts::unit())));
  for (const char* from_elsewhere : {"http:", "https:", "src=", "href=", "@import", "url("})
    EXPECT_EQ(occurrences(page, from_elsewhere), 0) << from_elsewhere;
  EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
  EXPECT_TRUE(page.ends_with("</html>\n"));
}

// Regression test: after a renaming, the script read a member that slots do not have, and tooltips were "undefined".
TEST(ScheduleHtml, the_script_reads_only_members_that_slots_have) {
  const Schedule with_pairs = generate("dualpipe-v", {.ranks = 2, .micro_batches = 4, .chunks = 2});
  const std::string page = schedule_html(with_pairs, StageCosts::unit());
  const json form = data_of(page, "schedule");
  json all_members = json::object();
  for (const json& slot : form["slots"]) all_members.update(slot);
  int members = 0;
  for (const std::string object : {" slot.", "(slot.", "slots[index]."}) {
    for (std::size_t at = page.find(object); at != page.npos; at = page.find(object, at + 1)) {
      const std::size_t begin = at + object.size();
      const std::string member =
          page.substr(begin, page.find_first_not_of("abcdefghijklmnopqrstuvwxyz_", begin) - begin);
      EXPECT_TRUE(all_members.contains(member)) << object << member;
      ++members;
    }
  }
  EXPECT_GT(members, 10);
}

TEST(ScheduleHtml, has_the_rows_and_colours_of_the_svg) {
  const Schedule schedule = read_schedule(R"(penstock schedule 1
name v
ranks 1
stages 2
micro_batches 1
rank_of_stage 0 0
rank 0: 0F0 1F0 1I0 1W0 0I0 0W0
)");
  const json look = data_of(schedule_html(schedule, StageCosts::unit()), "look");
  EXPECT_EQ(look["title"], "v: p = 1, v = 2, m = 1");
  EXPECT_EQ(look["rows"], (json::array({{{"name", "rank 0"}, {"place", "stages 0,1"}}})));
  const std::string svg = schedule_svg(schedule, StageCosts::unit());
  for (const char* op : {"F", "I", "W"})
    for (const json& colour : look["kinds"][op]["colour_of_stage"])
      EXPECT_EQ(occurrences(svg, "fill=\"" + colour.get<std::string>() + "\""), 2) << op << ": a box and the legend";
}

TEST(ScheduleHtml, a_name_cannot_break_the_page) {
  const std::string page = schedule_html(with_name("</script><!-- @SCHEDULE@ \xff"), StageCosts::unit());
  EXPECT_EQ(occurrences(page, "</script>"), 3);
  EXPECT_EQ(occurrences(page, "<!--"), 0);
  EXPECT_EQ(data_of(page, "schedule")["name"], "</script><!-- @SCHEDULE@ \xef\xbf\xbd");
}

TEST(ScheduleHtml, accepts_more_boxes_than_an_svg) {
  EXPECT_GT(schedule_html(generate("gpipe", {.ranks = 10, .micro_batches = 2500}), StageCosts::unit()).size(), 50'000u);
  EXPECT_THROW(schedule_html(generate("gpipe", {.ranks = 100, .micro_batches = 1501}), StageCosts::unit()),
               ConfigError);
}

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

TEST(ScheduleJson, contains_shape_costs_and_results) {
  const Schedule schedule = lower(generate("1f1b", two_by_four));
  const StageCosts costs{.forward = {1, 2}, .message = 0.5, .weight_share = 0.25, .overhead = 0.125};
  const Simulation expected = simulate(schedule, costs);
  const std::string text = schedule_json(schedule, costs);
  EXPECT_EQ(text.substr(0, 47), "{\n\"format\": \"penstock schedule\",\n\"version\": 1,\n");
  json made = json::parse(text);
  made.erase("slots");
  json all = json::parse(R"({"format": "penstock schedule", "version": 1, "name": "1f1b", "ranks": 2, "stages": 2,
    "micro_batches": 4, "rank_of_stage": [0, 1], "peak_activations": [2.0, 1.0],
    "costs": {"forward": [1.0, 2.0], "input_grad": [1.0], "weight_grad": [1.0], "update": [0.0], "message": 0.5,
              "weight_share": 0.25, "overhead": 0.125}})");
  all.update({{"makespan", expected.makespan},
              {"span", expected.span},
              {"busy", expected.busy},
              {"bubble_makespan", expected.bubble_makespan},
              {"bubble_span", expected.bubble_span}});
  EXPECT_EQ(made, all);
}

TEST(ScheduleJson, slots_are_the_instructions_with_their_times) {
  const json made = document(lower(generate("1f1b", two_by_four)), {.update = {3}});
  ASSERT_EQ(made["slots"].size(), 18) << "8 F, 8 B, 2 STEP";
  EXPECT_EQ(slot(made, "1B0"), json::parse(R"({"rank": 1, "word": "1B0", "op": "B", "stage": 1, "micro_batches": [0, 0],
    "begin": 2, "end": 4, "needs": ["1F0"]})"));
  EXPECT_EQ(slot(made, "0STEP"), json::parse(R"({"rank": 0, "word": "0STEP", "op": "STEP", "stage": 0, "begin": 15,
    "end": 18, "needs": ["0B0", "0B1", "0B2", "0B3"]})"));
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
  EXPECT_EQ(document(with_name("a\"b\xff"))["name"], "a\"b\xef\xbf\xbd");
}
}  // namespace
}  // namespace penstock::pictures_test
