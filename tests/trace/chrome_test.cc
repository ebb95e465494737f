#include "penstock/trace/chrome.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "tests/base/error_text.h"
#include "tests/schedule/random_schedule.h"
#include "tests/trace/golden.h"
#include "tests/trace/made_trace.h"

namespace penstock::chrome_test {
namespace {

using nlohmann::json;

Trace golden_trace() {
  Trace trace = made_trace({.shape = {.ranks = 2, .micro_batches = 2},
                            .costs = {{1.1}, {1.2}, {0.9}, {0.3}, 0.05},
                            .steps = 2,
                            .slowdown = 0.1});
  trace.settings = {{"micro-batches", "2"}, {"transport", "threads"}};
  return trace;
}

TEST(Chrome, matches_the_golden_file) {
  expect_golden(TESTS_FOLDER "/trace/goldens/trace.json", write_trace(golden_trace()));
  EXPECT_EQ(read_trace(content(TESTS_FOLDER "/trace/goldens/trace.json")), golden_trace());
}

/// A random trace, with any instructions and spans of any length.
Trace any_trace() {
  Trace trace;
  trace.schedule = any_instructions();
  trace.replicas = *rc::gen::inRange(1, 4);
  trace.settings = *rc::gen::container<std::map<std::string, std::string>>(
      rc::gen::container<std::string>(rc::gen::inRange(' ', '~')),
      rc::gen::container<std::string>(rc::gen::inRange('\0', '~')));
  trace.ranks.resize(trace.schedule.orders.size() * static_cast<std::size_t>(trace.replicas));
  for (auto& steps : trace.ranks)
    for (int n = *rc::gen::inRange(0, 4); n > 0; --n) {
      RankStep step;
      step.step = *rc::gen::arbitrary<std::uint64_t>();
      std::int64_t clock = step.begin_ns = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 62);
      for (int instructions = *rc::gen::inRange(0, 8); instructions > 0; --instructions) {
        Span span;
        span.instruction = any_instruction(trace.schedule.stage_count(), trace.schedule.micro_batches);
        if (*rc::gen::inRange(0, 5) == 0) span.instruction = span.instruction.overlapping_next();
        span.activity = static_cast<Activity>(*rc::gen::inRange(0, 4));
        span.begin_ns = clock += *rc::gen::inRange(0, 3);
        span.end_ns = clock += *rc::gen::inRange<std::int64_t>(0, 1'000'000'007);
        span.transit_ns = *rc::gen::element<std::int64_t>(0, 1, -5, INT64_MAX, INT64_MIN);
        span.late_ns = *rc::gen::element<std::int64_t>(0, 1, -5, INT64_MAX, INT64_MIN);
        step.spans.push_back(span);
      }
      step.end_ns = clock + *rc::gen::inRange(0, 3);
      steps.push_back(std::move(step));
    }
  return trace;
}

RC_GTEST_PROP(Chrome, read_is_the_inverse_of_write, ()) {
  const Trace trace = any_trace();
  RC_ASSERT(read_trace(write_trace(trace)) == trace);
}

/// The conversion of microseconds to nanoseconds in viewers.
std::int64_t truncated(const json& us) { return static_cast<std::int64_t>(us.get<double>() * 1000); }

// Perfetto requires that the events of a track follow or enclose each other.
RC_GTEST_PROP(Chrome, tracks_nest, ()) {
  Trace trace = made_trace({.shape = {.ranks = 3, .micro_batches = 5}, .steps = 3});
  std::int64_t clock = *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << 60);
  for (auto& steps : trace.ranks)
    for (RankStep& step : steps) {
      step.begin_ns = clock;
      for (Span& span : step.spans) {
        span.begin_ns = clock;
        span.end_ns = clock += *rc::gen::inRange(0, 100'000);
      }
      step.end_ns = clock;
    }
  const json document = json::parse(write_trace(trace));
  std::map<std::pair<int, int>, std::int64_t> ends;
  for (const json& event : document["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const std::int64_t begin = truncated(event["ts"]);
    const std::int64_t length = truncated(event["dur"]);
    RC_ASSERT(length == event["args"]["end_ns"].get<std::int64_t>() - event["args"]["begin_ns"].get<std::int64_t>());
    std::int64_t& end = ends[{event["pid"].get<int>(), event["tid"].get<int>()}];
    RC_ASSERT(begin >= end);
    end = begin + length;
  }
}

TEST(Chrome, names_ranks_stages_and_tracks) {
  Trace trace = made_trace({.replicas = 2});
  const json document = json::parse(write_trace(trace));
  std::vector<std::string> names, tracks;
  for (const json& event : document["traceEvents"]) {
    if (event["name"] == "process_name") names.push_back(event["args"]["name"]);
    if (event["name"] == "thread_name" && event["pid"] == 0) tracks.push_back(event["args"]["name"]);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"rank 0 (stage 0, replica 0)", "rank 1 (stage 0, replica 1)",
                                             "rank 2 (stage 1, replica 0)", "rank 3 (stage 1, replica 1)"}));
  EXPECT_EQ(tracks, (std::vector<std::string>{"step", "compute", "wait", "messages", "update"}));
}

TEST(Chrome, refuses_to_write_unreadable_traces) {
  for (const auto spoil :
       {+[](Trace& trace) { trace.ranks[0][0].spans[3].begin_ns -= 1; },  // they overlap
        +[](Trace& trace) { trace.ranks.pop_back(); }, +[](Trace& trace) { trace.ranks[0][0].begin_ns = -1; }}) {
    Trace trace = made_trace({});
    spoil(trace);
    EXPECT_THROW(write_trace(trace), DataError);
  }
}

TEST(Chrome, a_setting_that_is_not_UTF_8_is_replaced) {
  Trace trace = made_trace({});
  trace.settings["schedule"] = "a\xff.sched";
  EXPECT_EQ(read_trace(write_trace(trace)).settings.at("schedule"), "a\xef\xbf\xbd.sched");
}

std::string error_text(std::string_view text) {
  return test::error_text<DataError>([&] { read_trace(text); });
}

TEST(Chrome, refuses_files_that_are_no_trace) {
  using Case = std::pair<const char*, const char*>;
  for (const auto& [text, complaint] :
       {Case{"", "is not JSON: it is empty"},
        Case{R"({"traceEvents":[)", "is not JSON: it breaks off at line 1, column 17; truncated?"},
        Case{"{\n \"a\": oops}", "is not JSON: line 2, column 7: "}, Case{R"({"a": 1e999})", "is not JSON: "},
        Case{"{\"a\": \"\xff\"}", "is not JSON: line 1, column 8: "}, Case{"[]", "is not a JSON object"},
        Case{"{}", "has no penstock: this is not a trace that Penstock wrote"},
        Case{R"({"traceEvents":[]})", "has no penstock: this is not a trace that Penstock wrote"},
        Case{R"({"penstock":{"format":"1"}})", "'s penstock.format is not a whole number from 0"},
        Case{R"({"penstock":{"format":2}})", "is of format 2, and this Penstock reads format 1"}})
    EXPECT_TRUE(test::says(error_text(text), "the trace", complaint)) << error_text(text);
}

TEST(Chrome, reports_truncation_at_every_length) {
  const std::string whole = write_trace(golden_trace());
  for (std::size_t length = 1; length + 2 < whole.size(); length += 97) {
    const std::string text = error_text(whole.substr(0, length));
    EXPECT_NE(text.find("truncated?"), std::string::npos) << length << ": " << text;
    EXPECT_EQ(text.find("json.exception"), std::string::npos) << text;
  }
}

TEST(Chrome, a_reformatted_file_is_the_same_trace) {
  EXPECT_EQ(read_trace(json::parse(write_trace(golden_trace())).dump(4)), golden_trace());
}

TEST(Chrome, detects_every_changed_value) {
  const json original = json::parse(write_trace(golden_trace()));
  const json flat = original.flatten();
  for (const auto& [path, value] : flat.items()) {
    // Settings may have any value.
    json changed = original;
    json& target = changed[json::json_pointer(path)];
    if (value.is_string())
      target = value.get<std::string>() + "x";
    else
      target = value.get<double>() + 0.5;
    if (path.starts_with("/penstock/settings")) continue;
    EXPECT_NE(error_text(changed.dump()), "[no error]") << path;
  }
}

TEST(Chrome, names_the_changed_place) {
  const json whole = json::parse(write_trace(golden_trace()));
  const auto complaint_after = [&](const json& patch) { return error_text(whole.patch(patch).dump()); };
  const auto with = [](const char* path, const json& value) {
    return json::array({json{{"op", "add"}, {"path", path}, {"value", value}}});
  };
  const auto without = [](const char* path) { return json::array({json{{"op", "remove"}, {"path", path}}}); };
  const std::vector<std::pair<json, std::string>> cases{
      {with("/traceEvents/24/pid", 9), "the trace's traceEvents[24].pid is 9, but there are 2 ranks"},
      {without("/traceEvents/24"), "the trace's traceEvents[24] comes before the first step of rank 0"},
      {with("/traceEvents/25/cat", "rest"), "the trace's traceEvents[25].cat is 'rest', which is not an activity"},
      {without("/traceEvents/25/args/end_ns"), "the trace's traceEvents[25].args has no member 'end_ns'"},
      {with("/traceEvents/25/args/begin_ns", std::uint64_t{1} << 63), "traceEvents[25].args.begin_ns is not a whole"},
      {with("/penstock/replicas", 3), "the trace's event 0 is not what Penstock writes there: {\"args\":{\"name\":"},
      {with("/penstock/replicas", 0), "the trace has 0 replicas: 1 to 1000000 are possible"},
      {with("/penstock/replicas", 999'999), "the trace has 64 events for 1999998 ranks"},
      {with("/penstock/note", "mine"), "the trace's penstock object is not what Penstock writes for it"},
      {with("/note", "mine"), "the trace holds more than displayTimeUnit (ms), penstock and traceEvents"},
      {with("/traceEvents/-", {{"ph", "i"}}), "the trace holds 65 events, but Penstock writes 64"},
      {with("/penstock/schedule", "penstock schedule 2"), "line 1"}};
  for (const auto& [patch, complaint] : cases)
    EXPECT_TRUE(test::says(complaint_after(patch), complaint)) << complaint_after(patch);
}

}  // namespace
}  // namespace penstock::chrome_test
