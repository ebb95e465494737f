#include "penstock/trace/chrome.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/schedule/text.h"
#include "penstock/trace/complete_steps.h"

namespace penstock {
namespace {

using nlohmann::json;

/// The version of the format, incremented when a file of the old format would be misread.
constexpr int trace_format = 1;

/// Tracks of one rank, from top to bottom. Spans of one rank never overlap, so neither do those of a track; and
/// a step encloses its spans from a track of its own.
constexpr std::array track_names = {"step", "compute", "wait", "messages", "update"};

/// Tracks are numbered from 1: viewers reserve thread 0 of process 0 for an idle processor.
constexpr std::size_t step_track = 1;
std::size_t track_of(Activity activity) { return step_track + 1 + static_cast<std::size_t>(activity); }

const char* category_of(Activity activity) {
  constexpr std::array names = {"compute", "wait", "communicate", "update"};
  return names[static_cast<std::size_t>(activity)];
}

/// Viewers convert microseconds to nanoseconds by truncation. This is a value that gives `ns` again.
double viewer_us(std::int64_t ns) {
  const double us = static_cast<double>(ns) / 1000;
  const bool survives = static_cast<std::int64_t>(us * 1000) >= ns;
  return survives ? us : std::nextafter(us, std::numeric_limits<double>::infinity());
}

std::string process_name(const Trace& trace, std::size_t rank) {
  const std::vector<StageId> stages = stages_of(trace.schedule, pipeline_rank(trace, rank));
  std::string name =
      say("rank ", rank, stages.size() == 1 ? " (stage " : " (stages ", listed(stages, ", ", &StageId::value));
  if (trace.replicas > 1) name += say(", replica ", rank % static_cast<std::size_t>(trace.replicas));
  return name + ")";
}

json metadata(const char* what, std::size_t rank, json args) {
  return {{"ph", "M"}, {"name", what}, {"pid", rank}, {"args", std::move(args)}};
}

/// The time of an event: in whole nanoseconds for read_trace(), in microseconds since `origin` for viewers.
json timed(std::int64_t begin, std::int64_t end, std::int64_t origin) {
  return {{"ph", "X"},
          {"ts", viewer_us(begin - origin)},
          {"dur", viewer_us(end - begin)},
          {"args", {{"begin_ns", begin}, {"end_ns", end}}}};
}

json step_event(const RankStep& step, std::size_t rank, std::int64_t origin) {
  json event = timed(step.begin_ns, step.end_ns, origin);
  event.update({{"name", say("step ", step.step)}, {"cat", "step"}, {"pid", rank}, {"tid", step_track}});
  event["args"]["step"] = step.step;
  return event;
}

json span_event(const Span& span, std::size_t rank, std::int64_t origin) {
  json event = timed(span.begin_ns, span.end_ns, origin);
  event.update({{"name", to_string(span.instruction)},
                {"cat", category_of(span.activity)},
                {"pid", rank},
                {"tid", track_of(span.activity)}});
  if (span.transit_ns != 0) event["args"]["transit_ns"] = span.transit_ns;
  if (span.late_ns != 0) event["args"]["late_ns"] = span.late_ns;
  if (span.instruction.overlaps_next()) event["args"]["overlaps_next"] = true;
  return event;
}

void require_order(const RankStep& step, std::size_t rank) {
  std::int64_t cursor = step.begin_ns;
  require<DataError>(cursor >= 0, "rank ", rank, ", step ", step.step, " begins at ", cursor, " ns, before time 0");
  for (const Span& span : step.spans) {
    require<DataError>(span.begin_ns >= cursor && span.end_ns >= span.begin_ns, "rank ", rank, ", step ", step.step,
                       ": ", to_string(span.instruction), " runs from ", span.begin_ns, " to ", span.end_ns,
                       " ns, but what is before it ends at ", cursor, " ns");
    cursor = span.end_ns;
  }
  require<DataError>(step.end_ns >= cursor, "rank ", rank, ", step ", step.step, " ends at ", step.end_ns,
                     " ns, before its last span at ", cursor, " ns");
}

/// Throws DataError if `trace` is inconsistent: steps of a number of ranks other than p * d, or spans out of order.
void require_trace(const Trace& trace) {
  const auto ranks = static_cast<std::int64_t>(trace.schedule.rank_count());
  require<DataError>(trace.replicas >= 1 && ranks * trace.replicas == static_cast<std::int64_t>(trace.ranks.size()),
                     "a trace of ", trace.ranks.size(), " ranks does not fit a schedule for ", ranks, " ranks and ",
                     trace.replicas, " replicas: it needs one list of steps for each of ranks x replicas");
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank)
    for (const RankStep& step : trace.ranks[rank]) require_order(step, rank);
}

/// The object "penstock": the parts of a trace that are not events.
json header_document(const Trace& trace) {
  return {{"format", trace_format},
          {"replicas", trace.replicas},
          {"schedule", write_schedule(trace.schedule)},
          {"settings", trace.settings}};
}

/// Calls `visit` for every element of "traceEvents", in order.
void for_each_event(const Trace& trace, const std::function<void(const json&)>& visit) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const auto& steps : trace.ranks)
    for (const RankStep& step : steps) origin = std::min(origin, step.begin_ns);

  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
    visit(metadata("process_name", rank, {{"name", process_name(trace, rank)}}));
    visit(metadata("process_sort_index", rank, {{"sort_index", rank}}));
    for (std::size_t track = 0; track < track_names.size(); ++track) {
      json name = metadata("thread_name", rank, {{"name", track_names[track]}});
      json order = metadata("thread_sort_index", rank, {{"sort_index", track}});
      name["tid"] = order["tid"] = step_track + track;
      visit(name);
      visit(order);
    }
  }
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank)
    for (const RankStep& step : trace.ranks[rank]) {
      visit(step_event(step, rank, origin));
      for (const Span& span : step.spans) visit(span_event(span, rank, origin));
    }
}

std::int64_t ns_in(const StrictValue& time) {
  return time.whole(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
}

Activity activity_named(const StrictValue& value) {
  const std::string name = value.text();
  if (name == "compute") return Activity::compute;
  if (name == "wait") return Activity::wait;
  if (name == "communicate") return Activity::communicate;
  if (name == "update") return Activity::update;
  throw DataError(say(value.place(), " is '", printable(name), "', which is not an activity"));
}

Span read_span(const StrictValue& event) {
  const StrictValue args = event["args"];
  Span span;
  span.instruction = parse_instruction(event["name"].text());
  if (args.has("overlaps_next")) span.instruction = span.instruction.overlapping_next();
  span.activity = activity_named(event["cat"]);
  span.begin_ns = ns_in(args["begin_ns"]);
  span.end_ns = ns_in(args["end_ns"]);
  if (args.has("transit_ns")) span.transit_ns = ns_in(args["transit_ns"]);
  if (args.has("late_ns")) span.late_ns = ns_in(args["late_ns"]);
  return span;
}

RankStep read_step(const StrictValue& event) {
  const StrictValue args = event["args"];
  return {args["step"].count(), ns_in(args["begin_ns"]), ns_in(args["end_ns"]), {}};
}

void read_event(const StrictValue& event, Trace& trace) {
  if (event["ph"].text() != "X") return;
  const std::uint64_t rank = event["pid"].count();
  require<DataError>(rank < trace.ranks.size(), event["pid"].place(), " is ", rank, ", but there are ",
                     trace.ranks.size(), " ranks");
  std::vector<RankStep>& steps = trace.ranks[rank];
  if (event["cat"].text() == "step") return steps.push_back(read_step(event));
  require<DataError>(!steps.empty(), event.place(), " comes before the first step of rank ", rank);
  steps.back().spans.push_back(read_span(event));
}

Trace read_header(const StrictValue& header) {
  require<DataError>(header["format"].count() == trace_format, "the trace is of format ", header["format"].count(),
                     ", and this Penstock reads format ", trace_format);
  Trace trace;
  trace.schedule = read_schedule(header["schedule"].text());
  require<DataError>(trace.schedule.more_pipelines.empty(), "the trace's schedule has ",
                     trace.schedule.pipeline_count(), " copies of each stage, but a pipeline executes one");
  const std::uint64_t replicas = header["replicas"].count();
  require<DataError>(replicas >= 1 && replicas <= 1'000'000, "the trace has ", replicas,
                     " replicas: 1 to 1000000 are possible");
  trace.replicas = static_cast<int>(replicas);
  for (const auto& [key, value] : header["settings"].members()) trace.settings[key] = value.text();
  return trace;
}

/// Requires that the file is what write_trace() writes for `trace`, including the members that read_trace() does not
/// use.
void require_same_document(const json& document, const Trace& trace) {
  require<DataError>(document.size() == 3 && document["displayTimeUnit"] == "ms",
                     "the trace holds more than displayTimeUnit (ms), penstock and traceEvents");
  require<DataError>(document["penstock"] == header_document(trace),
                     "the trace's penstock object is not what Penstock writes for it");
  const json& events = document["traceEvents"];
  std::size_t next = 0;
  for_each_event(trace, [&](const json& expected) {
    require<DataError>(next < events.size() && events[next] == expected, "the trace's event ", next,
                       " is not what Penstock writes there: ", json_text(expected));
    ++next;
  });
  require<DataError>(next == events.size(), "the trace holds ", events.size(), " events, but Penstock writes ", next);
}

}  // namespace

std::string write_trace(const Trace& trace) {
  require_trace(trace);
  // A path among the settings may contain any bytes. They must not prevent writing the trace.
  std::string text = "{\"displayTimeUnit\":\"ms\",\"penstock\":" + json_text(header_document(trace));
  text += ",\n\"traceEvents\":[";
  const char* before = "\n";
  for_each_event(trace, [&](const json& event) {
    text += before + json_text(event);
    before = ",\n";
  });
  return text + "\n]}\n";
}

Trace read_trace(std::string_view text) {
  const json document = parse_strictly(text, "the trace");
  const StrictValue root(document, "the trace");
  require<DataError>(root.has("penstock"), "the trace has no penstock: this is not a trace that Penstock wrote");
  Trace trace = read_header(root["penstock"]);
  const std::vector<StrictValue> events = root["traceEvents"].list();
  // Every rank has at least one event. A short file must not cause a large allocation.
  const auto ranks =
      static_cast<std::uint64_t>(trace.schedule.rank_count()) * static_cast<std::uint64_t>(trace.replicas);
  require<DataError>(ranks <= events.size(), "the trace has ", events.size(), " events for ", ranks, " ranks");
  trace.ranks.resize(ranks);
  for (const StrictValue& event : events) read_event(event, trace);
  require_trace(trace);
  root["displayTimeUnit"].text();
  require_same_document(document, trace);
  return trace;
}

}  // namespace penstock
