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

std::int64_t measure_clock_offset(const RankContext& context, const GatherTag& tag, WorldRank other) {
  Transport& endpoint = *context.endpoint;
  const auto tag_of = [&](int question, bool is_answer) {
    return Tag{tag.pipeline, Traffic::control, tag.round, 5, other.value(), 2 * question + (is_answer ? 1 : 0)};
  };
  std::vector<ClockReading> readings;
  for (int i = 0; i < questions; ++i) {
    if (context.rank == other) {
      endpoint.receive(WorldRank(0), tag_of(i, false), "a question for this host's clock");
      endpoint.send(WorldRank(0), tag_of(i, true), message_of(now_ns()));
      continue;
    }
    const std::int64_t asked = now_ns();
    endpoint.send(other, tag_of(i, false), {});
    const Message answer = endpoint.receive(other, tag_of(i, true), "the clock of another host");
    readings.push_back({asked, record_in<std::int64_t>(answer), now_ns()});
  }
  return readings.empty() ? 0 : clock_offset_ns(readings);
}

}  // namespace penstock
