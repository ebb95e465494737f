#include "penstock/trace/recorder.h"

#include "penstock/base/error.h"

namespace penstock {

Recorder::Recorder(std::size_t kept_steps) : ring_(kept_steps) {
  require<ConfigError>(kept_steps > 0, "a recorder that keeps 0 steps records nothing: keep at least 1");
}

void Recorder::begin_step(std::uint64_t step) {
  RankStep& slot = ring_[next_];
  // From here on the slot no longer holds the oldest step, whether or not the new one comes to its end.
  if (filled_ == ring_.size()) --filled_;
  slot.step = step;
  slot.spans.clear();
  slot.begin_ns = now_ns();
  slot.end_ns = slot.begin_ns;
}

void Recorder::end_step() {
  ring_[next_].end_ns = now_ns();
  next_ = (next_ + 1) % ring_.size();
  ++filled_;
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

}  // namespace penstock
