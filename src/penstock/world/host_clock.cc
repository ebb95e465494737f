#include "penstock/world/host_clock.h"

#include <algorithm>

#include "penstock/base/clock.h"
#include "penstock/transport/records.h"

namespace penstock {
namespace {

constexpr int questions = 8;

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
    Tag of_message = control_tag(tag.pipeline, Topic::host_clock, tag.step);
    of_message.to_stage = is_answer ? 1 : 0;
    of_message.micro_batch = question;
    return of_message;
  };
  if (context.rank != WorldRank(0)) {
    for (int i = 0; i < questions && !endpoint.shares_host(WorldRank(0)); ++i) {
      endpoint.receive(WorldRank(0), tag_of(i, false), "a question for this host's clock");
      endpoint.send(WorldRank(0), tag_of(i, true), message_of(now_ns()));
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
      readings.push_back({asked, record_in<std::int64_t>(answer), now_ns()});
    }
    offsets.push_back(readings.empty() ? 0 : clock_offset_ns(readings));
  }
  return offsets;
}

}  // namespace penstock
