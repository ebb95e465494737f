#include "penstock/world/gather.h"

#include <algorithm>
#include <string_view>

#include "penstock/base/clock.h"
#include "penstock/transport/records.h"
#include "penstock/world/collectives.h"

namespace penstock {
namespace {

constexpr int questions = 8;

/// A step without its spans.
struct StepHeader {
  static constexpr std::string_view record_name = "StepHeader";
  std::uint64_t step = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::uint64_t spans = 0;
};

/// The headers of all steps, then the spans of all steps.
Message message_of_steps(const std::vector<RankStep>& steps) {
  std::vector<StepHeader> headers;
  std::vector<Span> spans;
  for (const RankStep& step : steps) {
    headers.push_back({step.step, step.begin_ns, step.end_ns, step.spans.size()});
    spans.insert(spans.end(), step.spans.begin(), step.spans.end());
  }
  return transport::message_of(headers, spans);
}

std::vector<RankStep> steps_in(const Message& message) {
  const auto spans = transport::records_in<Span>(message, 1);
  auto next = spans.begin();
  std::vector<RankStep> steps;
  for (const StepHeader& header : transport::records_in<StepHeader>(message)) {
    require<InternalError>(header.spans <= static_cast<std::size_t>(spans.end() - next), "step ", header.step, " has ",
                           header.spans, " spans, of which ", spans.end() - next, " came");
    const auto end = next + static_cast<std::ptrdiff_t>(header.spans);
    steps.push_back({header.step, header.begin_ns, header.end_ns, {next, end}});
    next = end;
  }
  return steps;
}

torch::Tensor copy_on_cpu(const torch::Tensor& tensor) {
  return tensor.detach().to(torch::kCPU, /*non_blocking=*/false, /*copy=*/true);
}

}  // namespace

std::int64_t clock_offset_ns(const std::vector<ClockReading>& readings) {
  const auto way = [](const ClockReading& one) { return one.answered_ns - one.asked_ns; };
  const ClockReading& best = *std::min_element(
      readings.begin(), readings.end(), [&](const ClockReading& a, const ClockReading& b) { return way(a) < way(b); });
  return best.read_ns - (best.asked_ns + way(best) / 2);
}

void to_own_clock(std::int64_t offset_ns, std::vector<RankStep>& steps) {
  for (RankStep& step : steps) {
    step.begin_ns -= offset_ns;
    step.end_ns -= offset_ns;
    for (Span& span : step.spans) {
      span.begin_ns -= offset_ns;
      span.end_ns -= offset_ns;
    }
  }
}

std::vector<std::int64_t> measure_clock_offsets(const RankContext& context, const Tag& tag) {
  Transport& endpoint = *context.endpoint;
  const auto tag_of = [&](int question, bool is_answer) {
    return in_phase(control_tag(tag.pipeline, Topic::host_clock, tag.step), is_answer ? 1 : 0, question);
  };
  if (context.rank != WorldRank(0)) {
    for (int i = 0; i < questions && !endpoint.shares_host(WorldRank(0)); ++i) {
      endpoint.receive(WorldRank(0), tag_of(i, false), "a question for this host's clock");
      endpoint.send(WorldRank(0), tag_of(i, true), transport::message_of(now_ns()));
    }
    return {};
  }
  std::vector<std::int64_t> offsets;
  for (WorldRank other(0); other.value() < context.world_size(); other = other.next()) {
    std::vector<ClockReading> readings;
    for (int i = 0; i < questions && !endpoint.shares_host(other); ++i) {
      const std::int64_t asked = now_ns();
      endpoint.send(other, tag_of(i, false), {});
      const Message answer = endpoint.receive(other, tag_of(i, true), "the clock of another host");
      readings.push_back({asked, transport::record_in<std::int64_t>(answer), now_ns()});
    }
    offsets.push_back(readings.empty() ? 0 : clock_offset_ns(readings));
  }
  return offsets;
}

std::vector<std::vector<RankStep>> gather_steps(const RankContext& context, const Tag& tag,
                                                const std::vector<RankStep>& own) {
  const std::vector<std::int64_t> offsets = measure_clock_offsets(context, tag);
  std::vector<std::vector<RankStep>> all;
  for (Message& message : gather(context, tag, message_of_steps(own), "the trace")) {
    all.push_back(steps_in(message));
    message = {};  // traces of many ranks are large
    to_own_clock(offsets[all.size() - 1], all.back());
  }
  return all;
}

// Rank 0 requests one tensor after the other, so that messages in flight and the transport's buffers never hold more
// than two of them. The others return when rank 0 has all: a process that leaves its world because of an exception ends
// the waits of the others, so that rank 0 would lose what is still under way.
StateDict gather_tensors(const RankContext& context, const Tag& tag, const StateParts& own) {
  const torch::NoGradGuard no_grad;
  DataPlane& endpoint = *context.endpoint;
  const auto numbered = [&](std::int32_t phase, std::size_t number) {
    return in_phase(tag, phase, static_cast<std::int32_t>(number));
  };
  constexpr std::int32_t asked = 2, answered = 3, complete = 4;  // phases after those of gather()
  constexpr std::size_t ahead = 2;
  std::vector<std::uint64_t> lengths;
  std::vector<StatePlace> places;
  std::string names;
  for (const auto& [place, named] : own) {
    names += named.first;
    lengths.push_back(named.first.size());
    places.push_back(place);
  }
  const std::vector<Message> indices =
      gather(context, tag, transport::message_of(names, lengths, places), "the names of the parameters");
  if (context.rank != WorldRank(0)) {
    std::size_t i = 0;
    for (const auto& [place, named] : own) {
      endpoint.receive(WorldRank(0), numbered(asked, i), "whether rank 0 takes the next parameter");
      endpoint.send(WorldRank(0), numbered(answered, i++), {{{copy_on_cpu(named.second)}}});
    }
    endpoint.receive(WorldRank(0), numbered(complete, 0), "rank 0 to have all parameters");
    return StateDict();
  }
  StateParts all;
  for (const auto& [place, named] : own) all[place] = {named.first, copy_on_cpu(named.second)};
  for (int r = 1; r < context.world_size(); ++r) {
    const WorldRank from(r);
    const Message& index = indices[from.index()];
    names = transport::text_in(index);
    lengths = transport::records_in<std::uint64_t>(index, 1);
    places = transport::records_in<StatePlace>(index, 2);
    const std::size_t count = lengths.size();
    for (std::size_t i = 0; i < std::min(ahead, count); ++i) endpoint.send(from, numbered(asked, i), {});
    std::size_t at = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const Message message = endpoint.receive(from, numbered(answered, i), "the parameters");
      all[places[i]] = {names.substr(at, lengths[i]), message.payloads.front().tensor.clone()};
      at += lengths[i];
      if (i + ahead < count) endpoint.send(from, numbered(asked, i + ahead), {});
    }
  }
  for (int r = 1; r < context.world_size(); ++r) endpoint.send(WorldRank(r), numbered(complete, 0), {});
  return state_dict_of(all);
}

}  // namespace penstock
