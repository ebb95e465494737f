#include "penstock/trace/recorder.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"

namespace penstock {

Recorder::Recorder(std::size_t kept_steps, std::size_t most_bytes) : ring_(kept_steps), most_bytes_(most_bytes) {
  require<ConfigError>(kept_steps > 0, "a recorder that keeps 0 steps records nothing: keep at least 1");
}

void Recorder::begin_step(std::uint64_t step) {
  RankStep& slot = ring_[next_];
  // The oldest step is overwritten from here on, even if an exception ends the new one.
  if (filled_ == ring_.size()) --filled_;
  slot.step = step;
  slot.spans.clear();
  is_too_long_ = false;
  shortened_ = {};
  slot.begin_ns = now_ns();
  slot.end_ns = slot.begin_ns;
}

void Recorder::end_step() {
  RankStep& slot = ring_[next_];
  slot.end_ns = now_ns();
  newest_busy_ = shortened_;
  for (const Span& span : slot.spans) newest_busy_.add(span);
  if (is_too_long_) {
    ++too_long_;
    return;
  }
  next_ = (next_ + 1) % ring_.size();
  ++filled_;
}

bool Recorder::make_room() {
  if (is_too_long_) return false;
  constexpr std::size_t fewest = 64;
  std::vector<Span>& spans = ring_[next_].spans;
  const std::size_t held = spans.capacity() * sizeof(Span);
  // Twice as many as before, at most the limit. At the limit, no other step has memory left.
  const std::size_t most = most_bytes_ / sizeof(Span);
  const std::size_t wanted = std::min(std::max(fewest, 2 * spans.capacity()), most);
  if (wanted > spans.size()) {
    forget_for(wanted * sizeof(Span) - held);
    spans.reserve(wanted);
    bytes_ += spans.capacity() * sizeof(Span) - held;
    return true;
  }
  is_too_long_ = true;
  for (const Span& span : spans) shortened_.add(span);
  std::vector<Span>().swap(spans);
  bytes_ -= held;
  return false;
}

void Recorder::forget_for(std::size_t wanted) {
  for (std::size_t i = 1; i < ring_.size() && bytes_ + wanted > most_bytes_; ++i) {
    std::vector<Span>& oldest = ring_[(next_ + i) % ring_.size()].spans;
    bytes_ -= oldest.capacity() * sizeof(Span);
    std::vector<Span>().swap(oldest);
    filled_ = std::min(filled_, ring_.size() - 1 - i);
  }
}

std::vector<RankStep> Recorder::steps() const {
  std::vector<RankStep> kept;
  kept.reserve(filled_);
  const std::size_t oldest = next_ + ring_.size() - filled_;
  for (std::size_t i = 0; i < filled_; ++i) kept.push_back(ring_[(oldest + i) % ring_.size()]);
  return kept;
}

void Recorder::clear() {
  next_ = 0;
  filled_ = 0;
}

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
