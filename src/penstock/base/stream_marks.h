// Times on a device's stream: marks are queued between its work, and have a time when the device has reached them.
#pragma once

#include <cstdint>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace penstock {

/// Used by one thread. REQUIRES: the device's events measure time.
class StreamMarks {
 public:
  explicit StreamMarks(c10::Stream stream) : stream_(stream) {}

  /// Queues a mark and returns its number, counted from 0 since the last call of times().
  std::int64_t mark();
  /// Waits for the stream, and returns the times of all marks on the clock of base/clock.h. The next mark is number 0.
  std::vector<std::int64_t> times();

 private:
  c10::Stream stream_;
  std::vector<c10::Event> events_;  // reused
  std::size_t used_ = 0;
};

}  // namespace penstock
