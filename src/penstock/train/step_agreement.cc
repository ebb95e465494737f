#include "penstock/train/step_agreement.h"

#include <algorithm>
#include <utility>

#include "penstock/base/clock.h"
#include "penstock/world/collectives.h"
#include "penstock/world/rank_threads.h"

namespace penstock {
namespace {

constexpr double seconds_between = 0.25;
// Steps that have not been timed yet may be slower than those before.
constexpr std::int64_t most_growth = 4;
constexpr std::int64_t most_steps_between = 1000;

/// What a process wants, and what rank 0 decides. The reason to stop follows as text.
struct RequestRecord {
  static constexpr std::string_view record_name = "RequestRecord";
  std::int64_t save = 0;
  std::int64_t stop = 0;
  std::int64_t signal = 0;
  std::int64_t steps_until_next = 1;  // of the decision
};

/// How many steps take as long as processes may wait for an agreement, if they are like the last `steps`.
std::int64_t steps_between(std::int64_t steps, double seconds) {
  if (steps <= 0) return 1;
  const std::int64_t most = std::min(most_steps_between, most_growth * steps);
  const double fitting = static_cast<double>(steps) * seconds_between / std::max(seconds, 1e-9);
  return static_cast<std::int64_t>(std::clamp(fitting, 1.0, static_cast<double>(most)));
}

Message decided(const std::vector<Message>& all, std::int64_t steps_until_next) {
  RequestRecord decision = transport::record_in<RequestRecord>(all.front());
  std::string reason = transport::text_in(all.front(), 1);
  for (const Message& message : all) {
    const RequestRecord request = transport::record_in<RequestRecord>(message);
    if (decision.stop != 0 || request.stop == 0) continue;
    decision.stop = request.stop;
    decision.signal = request.signal;
    reason = transport::text_in(message, 1);
  }
  decision.steps_until_next = steps_until_next;
  return transport::message_of(decision, reason);
}

}  // namespace

void StepRequests::add(const StepRequests& later) {
  save = save || later.save;
  if (!stop) stop = later.stop;
}

StepAgreement::StepAgreement(const World& world) : world_(world), is_alone_(ranks_of(world).is_alone()) {}

std::optional<StepRequests> StepAgreement::agree(const StepRequests& own, StepKind kind) {
  if (is_alone_) return own;
  const bool changes = std::exchange(last_kind_, kind) != kind;
  if (calls_++ < next_ && !changes) return std::nullopt;
  const std::int64_t call = calls_ - 1;
  const bool is_timed = last_ns_ > 0 && !changes;
  const StopRequest stop = own.stop.value_or(StopRequest{});
  const RequestRecord request{own.save, own.stop.has_value(), stop.signal};
  const Tag tag = control_tag(pipeline_of_world, Topic::requests, ++rounds_);
  StepRequests agreed;
  ranks_of(world_).run_on_local_ranks([&](const RankContext& context) {
    const Message decision =
        penstock::agree(context, tag, transport::message_of(request, stop.reason),
                        // By then the steps are done, not only submitted.
                        [&](const std::vector<Message>& all) {
                          return decided(all, is_timed ? steps_between(call - last_, to_s(now_ns() - last_ns_)) : 1);
                        },
                        {.parts = "whether it wants to save or to stop", .decision = "whether all save or stop"});
    if (!context.collects) return;
    const RequestRecord all = transport::record_in<RequestRecord>(decision);
    agreed.save = all.save != 0;
    if (all.stop != 0) agreed.stop = StopRequest{transport::text_in(decision, 1), static_cast<int>(all.signal)};
    next_ = call + all.steps_until_next;
  });
  last_ = call;
  last_ns_ = now_ns();
  return agreed;
}

}  // namespace penstock
