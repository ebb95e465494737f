#include "penstock/trace/chrome.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/base/json_text.h"
#include "penstock/schedule/text.h"
#include "penstock/trace/chrome_document.h"
#include "penstock/trace/complete_steps.h"

namespace penstock {
namespace {

using nlohmann::json;

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
  std::string name = say("rank ", rank, stages.size() == 1 ? " (stage " : " (stages ");
  for (std::size_t i = 0; i < stages.size(); ++i) name += say(i > 0 ? ", " : "", stages[i].value());
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

}  // namespace

void require_trace(const Trace& trace) {
  const auto ranks = static_cast<std::int64_t>(trace.schedule.rank_count());
  require<DataError>(trace.replicas >= 1 && ranks * trace.replicas == static_cast<std::int64_t>(trace.ranks.size()),
                     "a trace of ", trace.ranks.size(), " ranks does not fit a schedule for ", ranks, " ranks and ",
                     trace.replicas, " replicas: it needs one list of steps for each of ranks x replicas");
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank)
    for (const RankStep& step : trace.ranks[rank]) require_order(step, rank);
}

json header_document(const Trace& trace) {
  return {{"format", trace_format},
          {"replicas", trace.replicas},
          {"schedule", write_schedule(trace.schedule)},
          {"settings", trace.settings}};
}

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

}  // namespace penstock
