#include "penstock/base/error.h"
#include "penstock/base/json_text.h"
#include "penstock/base/strict_json.h"
#include "penstock/base/utf8.h"
#include "penstock/schedule/text.h"
#include "penstock/trace/chrome.h"
#include "penstock/trace/chrome_document.h"

namespace penstock {
namespace {

using nlohmann::json;

/// A value of the file and its path, for messages.
class Node {
 public:
  Node(const json& value, std::string path) : value_(value), path_(std::move(path)) {}

  Node operator[](const char* key) const {
    const auto found = value_.is_object() ? value_.find(key) : value_.end();
    if (found == value_.end())
      throw DataError(
          say("the trace has no ", path(), path_.empty() ? "" : ".", key, ": this is no trace that Penstock wrote"));
    return Node(*found, path_.empty() ? key : path_ + "." + key);
  }
  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }

  const json& array() const { return as(value_.is_array(), "a list"); }
  const json& object() const { return as(value_.is_object(), "an object"); }
  std::string text() const { return as(value_.is_string(), "text").get<std::string>(); }
  std::uint64_t count() const { return as(value_.is_number_unsigned(), "a number >= 0").get<std::uint64_t>(); }
  std::int64_t whole() const {
    const bool fits = value_.is_number_integer() &&
                      (!value_.is_number_unsigned() || value_.get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
    return as(fits, "a whole number").get<std::int64_t>();
  }
  std::string path() const { return printable(path_); }

 private:
  const json& as(bool is_one, const char* what) const {
    if (!is_one) throw DataError(say("the trace's ", path(), " is not ", what));
    return value_;
  }

  const json& value_;
  std::string path_;
};

Activity activity_named(const Node& node) {
  const std::string name = node.text();
  if (name == "compute") return Activity::compute;
  if (name == "wait") return Activity::wait;
  if (name == "communicate") return Activity::communicate;
  if (name == "update") return Activity::update;
  throw DataError(say("the trace's ", node.path(), " is '", printable(name), "', which is no activity"));
}

Span read_span(const Node& event) {
  const Node args = event["args"];
  Span span;
  span.instruction = parse_instruction(event["name"].text());
  if (args.has("overlaps_next")) span.instruction = span.instruction.overlapping_next();
  span.activity = activity_named(event["cat"]);
  span.begin_ns = args["begin_ns"].whole();
  span.end_ns = args["end_ns"].whole();
  if (args.has("transit_ns")) span.transit_ns = args["transit_ns"].whole();
  if (args.has("late_ns")) span.late_ns = args["late_ns"].whole();
  return span;
}

RankStep read_step(const Node& event) {
  const Node args = event["args"];
  return {args["step"].count(), args["begin_ns"].whole(), args["end_ns"].whole(), {}};
}

void read_event(const Node& event, Trace& trace) {
  if (event["ph"].text() != "X") return;
  const std::uint64_t rank = event["pid"].count();
  require<DataError>(rank < trace.ranks.size(), "the trace's ", event.path(), ".pid is ", rank, ", but there are ",
                     trace.ranks.size(), " ranks");
  std::vector<RankStep>& steps = trace.ranks[rank];
  if (event["cat"].text() == "step") return steps.push_back(read_step(event));
  require<DataError>(!steps.empty(), "the trace's ", event.path(), " comes before the first step of rank ", rank);
  steps.back().spans.push_back(read_span(event));
}

Trace read_header(const Node& header) {
  require<DataError>(header["format"].count() == trace_format, "the trace is of format ", header["format"].count(),
                     ", and this Penstock reads format ", trace_format);
  Trace trace;
  trace.schedule = read_schedule(header["schedule"].text());
  const std::uint64_t replicas = header["replicas"].count();
  require<DataError>(replicas >= 1 && replicas <= 1'000'000, "the trace has ", replicas,
                     " replicas: 1 to 1000000 are possible");
  trace.replicas = static_cast<int>(replicas);
  const Node settings = header["settings"];
  for (const auto& [key, value] : settings.object().items())
    trace.settings[key] = Node(value, say("penstock.settings.", key)).text();
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
  require<DataError>(next == events.size(), "the trace holds ", events.size(), " events where Penstock writes ", next);
}

}  // namespace

Trace read_trace(std::string_view text) {
  const json document = parse_strictly(text, "the trace");
  const Node root(document, "");
  Trace trace = read_header(root["penstock"]);
  const json& events = root["traceEvents"].array();
  // Every rank has at least one event. A short file must not cause a large allocation.
  const auto ranks =
      static_cast<std::uint64_t>(trace.schedule.rank_count()) * static_cast<std::uint64_t>(trace.replicas);
  require<DataError>(ranks <= events.size(), "the trace has ", events.size(), " events for ", ranks, " ranks");
  trace.ranks.resize(ranks);
  for (std::size_t i = 0; i < events.size(); ++i) read_event(Node(events[i], say("traceEvents.", i)), trace);
  require_trace(trace);
  root["displayTimeUnit"].text();
  require_same_document(document, trace);
  return trace;
}

}  // namespace penstock
