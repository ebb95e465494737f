#include "penstock/trace/check_order.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "penstock/base/error.h"
#include "penstock/schedule/dependencies.h"

namespace penstock {
namespace {

/// One step of one replica: its ranks, by pipeline rank.
using PipelineStep = std::vector<const RankStep*>;

/// The steps that all ranks of a replica have recorded, by number.
std::map<std::uint64_t, PipelineStep> steps_of(const Trace& trace, std::size_t replica) {
  std::map<std::uint64_t, PipelineStep> steps;
  const auto replicas = static_cast<std::size_t>(trace.replicas);
  for (std::size_t rank = replica; rank < trace.ranks.size(); rank += replicas)
    for (const RankStep& step : trace.ranks[rank]) steps[step.step].push_back(&step);
  const std::size_t ranks = trace.ranks.size() / replicas;
  std::erase_if(steps, [&](const auto& step) { return step.second.size() != ranks; });
  return steps;
}

/// The schedule of a step, which may have fewer micro-batches than that of the trace. Throws ScheduleError for a step
/// that does not fit it.
Schedule schedule_of(const Schedule& whole, const PipelineStep& step) {
  int last = 0;
  std::size_t spans = 0;
  for (const RankStep* rank : step) {
    spans += rank->spans.size();
    for (const Span& span : rank->spans)
      if (!is_step_wide(span.instruction.op())) last = std::max(last, span.instruction.last().value());
  }
  // Each micro-batch has at least an F, so that memory is bounded by what the trace contains.
  require<ScheduleError>(last < whole.micro_batches && static_cast<std::size_t>(last) <= spans, "a step of ", spans,
                         " instructions has one of micro-batch ", last, ", and the schedule has ", whole.micro_batches,
                         " micro-batches");
  Schedule schedule = whole;
  schedule.micro_batches = last + 1;
  return schedule;
}

/// A wait of REDUCE is a part of it, and waits for other replicas.
bool is_checked(const Span& span) { return span.activity != Activity::wait || is_receive(span.instruction.op()); }

class StepCheck {
 public:
  StepCheck(const Schedule& schedule, const Links& links, std::int64_t tolerance_ns)
      : dependencies_(schedule, links), tolerance_ns_(tolerance_ns), happened_(dependencies_.event_count()) {}

  std::optional<std::string> violation(const PipelineStep& step) {
    for (const auto& check : {&StepCheck::note, &StepCheck::compare})
      for (std::size_t rank = 0; rank < step.size(); ++rank)
        for (const Span& span : step[rank]->spans) {
          if (!is_checked(span)) continue;
          if (const auto found = (this->*check)(span)) return say("rank ", rank, ": ", *found);
        }
    return std::nullopt;
  }

 private:
  struct Happened {
    std::int64_t time_ns = 0;
    Instruction instruction;
  };

  /// Notes when the events of an instruction happened.
  std::optional<std::string> note(const Span& span) {
    // A message may be there as soon as it begins to be sent; everything else when its instruction ends.
    const std::int64_t time = is_send(span.instruction.op()) ? span.begin_ns : span.end_ns;
    for (const Event& event : dependencies_.gives(span.instruction)) {
      auto& happened = happened_[dependencies_.index(event)];
      if (happened) return say(to_string(span.instruction), " ran, and ", to_string(event), " had happened before");
      happened = Happened{time, span.instruction};
    }
    return std::nullopt;
  }

  /// Compares the time of an instruction with those of the events that it needs.
  std::optional<std::string> compare(const Span& span) {
    const bool is_wait = is_receive(span.instruction.op());
    const std::int64_t time = is_wait ? span.end_ns : span.begin_ns;
    const std::string name = to_string(span.instruction);
    for (const Event& event : dependencies_.predecessors(span.instruction)) {
      const auto& happened = happened_[dependencies_.index(event)];
      if (!happened) return say(name, " ran, and ", to_string(event), ", which it needs, never happened");
      if (happened->time_ns <= time + tolerance_ns_) continue;
      return say(name, is_wait ? " ended " : " began ", static_cast<double>(happened->time_ns - time) / ns_per_us,
                 " us before ", to_string(happened->instruction), is_wait ? " began" : " ended");
    }
    return std::nullopt;
  }

  static constexpr double ns_per_us = 1e3;
  Dependencies dependencies_;
  std::int64_t tolerance_ns_;
  std::vector<std::optional<Happened>> happened_;  // by event
};

}  // namespace

OrderCheck check_order(const Trace& trace, std::int64_t tolerance_ns) {
  const Links links = executed_links(trace.schedule);
  OrderCheck check;
  for (int replica = 0; replica < trace.replicas; ++replica)
    for (const auto& [number, step] : steps_of(trace, static_cast<std::size_t>(replica))) {
      ++check.steps;
      for (const RankStep* rank : step) check.instructions += rank->spans.size();
      const auto found = StepCheck(schedule_of(trace.schedule, step), links, tolerance_ns).violation(step);
      if (found && !check.violation)
        check.violation = say("step ", number, trace.replicas > 1 ? say(", replica ", replica) : "", ", ", *found);
    }
  return check;
}

}  // namespace penstock
