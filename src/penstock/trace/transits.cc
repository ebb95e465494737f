#include "penstock/trace/transits.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

namespace penstock {
namespace {

/// A SEND on one rank: the step, then the instruction.
using SendKey = std::tuple<std::uint64_t, Op, StageId, StageId, MicroBatch>;

std::map<SendKey, std::int64_t> begins_of_sends(const std::vector<RankStep>& steps) {
  std::map<SendKey, std::int64_t> begins;
  for (const RankStep& step : steps)
    for (const Span& span : step.spans)
      if (const Instruction& send = span.instruction; is_send(send.op()))
        begins[{step.step, send.op(), send.stage(), send.peer(), send.micro_batch()}] = span.begin_ns;
  return begins;
}

}  // namespace

void fill_in_transits(Trace& trace) {
  std::vector<std::optional<std::map<SendKey, std::int64_t>>> sends(trace.ranks.size());  // where they are needed
  for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank)
    for (RankStep& step : trace.ranks[rank])
      for (Span& span : step.spans) {
        const Instruction& receive = span.instruction;
        if (span.activity != Activity::wait || !is_receive(receive.op()) || span.transit_ns != 0) continue;
        const auto replicas = static_cast<std::size_t>(trace.replicas);
        const std::size_t sender = trace.schedule.rank_of(receive.peer()).index() * replicas + rank % replicas;
        if (!sends[sender]) sends[sender] = begins_of_sends(trace.ranks[sender]);
        const Op op = receive.op() == Op::recv_forward ? Op::send_forward : Op::send_backward;
        const auto sent = sends[sender]->find({step.step, op, receive.peer(), receive.stage(), receive.micro_batch()});
        if (sent == sends[sender]->end()) continue;
        span.transit_ns = std::max<std::int64_t>(1, span.end_ns - span.late_ns - sent->second);
      }
}

}  // namespace penstock
