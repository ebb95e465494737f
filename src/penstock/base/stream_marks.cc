#include "penstock/base/stream_marks.h"

#include <cmath>

#include "penstock/base/clock.h"

namespace penstock {

std::int64_t StreamMarks::mark() {
  if (used_ == events_.size()) events_.emplace_back(stream_.device_type(), c10::EventFlag::BACKEND_DEFAULT);
  events_[used_].record(stream_);
  return static_cast<std::int64_t>(used_++);
}

// The clock of a device begins anywhere. A mark on the idle stream is at once reached, so that both clocks are known.
std::vector<std::int64_t> StreamMarks::times() {
  const std::size_t count = used_;
  stream_.synchronize();
  const auto present = static_cast<std::size_t>(mark());
  events_[present].synchronize();
  const std::int64_t now = now_ns();
  std::vector<std::int64_t> times;
  times.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    times.push_back(now - std::llround(1e6 * events_[i].elapsedTime(events_[present])));
  used_ = 0;
  return times;
}

}  // namespace penstock
