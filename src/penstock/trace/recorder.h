// Records the instructions of one rank while it executes them. Recording is always on: a span costs two clock readings
// and a store. Times are in nanoseconds of base/clock.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock {

enum class Activity : std::uint8_t {
  compute,      // F, B, I, W
  wait,         // waiting for a message; the instruction is its RECV (or REDUCE)
  communicate,  // sending a message, or taking in a received one
  update        // the work of REDUCE, NORM and STEP, without waiting
};

struct Span {
  static constexpr std::string_view record_name = "Span";  // spans are sent to other ranks (transport/records.h)

  Instruction instruction;
  Activity activity = Activity::compute;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t transit_ns = 0;  // for a wait: the time from the send of the message to its arrival; 0 if unknown
  /// For a wait: the time from the arrival of the message to the end of the wait, when the rank ran again;
  /// 0 if unknown.
  std::int64_t late_ns = 0;

  friend bool operator==(const Span&, const Span&) = default;
};

/// One step on one rank. Spans are in order of begin and do not overlap.
struct RankStep {
  std::uint64_t step = 0;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::vector<Span> spans;

  friend bool operator==(const RankStep&, const RankStep&) = default;
};

/// The busy time of a rank in one step, from its first compute or update instruction to its last.
struct BusyTime {
  std::int64_t begin_ns = 0;  // 0: the rank was not busy
  std::int64_t end_ns = 0;
  std::int64_t busy_ns = 0;

  void add(const Span& span) {
    if (span.activity != Activity::compute && span.activity != Activity::update) return;
    if (begin_ns == 0) begin_ns = span.begin_ns;
    end_ns = span.end_ns;
    busy_ns += span.end_ns - span.begin_ns;
  }
};

/// Stores the newest steps of one rank within a limit of bytes. Not thread-safe: the rank's thread writes it, and other
/// threads may read it only while the rank executes nothing.
class Recorder {
 public:
  /// Enough for some 500,000 spans, as in 64 steps of 2,000 micro-batches.
  static constexpr std::size_t default_bytes = std::size_t{32} << 20;

  /// Stores at most `kept_steps` steps, whose spans take at most `most_bytes`. Throws ConfigError for 0 steps.
  explicit Recorder(std::size_t kept_steps = 64, std::size_t most_bytes = default_bytes);

  /// Opens a step. If the recorder is full, the oldest step is dropped. A step that is still open, because an exception
  /// ended it, is replaced.
  void begin_step(std::uint64_t step);
  /// Adds `span` to the open step. Memory of old steps is reused, so that it allocates only for steps that are longer
  /// than all before. If the limit of bytes is reached, the oldest steps are dropped; of a step that exceeds the limit
  /// alone, only the busy time is stored.
  void note(const Span& span) {
    std::vector<Span>& spans = ring_[next_].spans;
    if (spans.size() == spans.capacity() && !make_room()) return shortened_.add(span);
    spans.push_back(span);
  }
  /// Closes the open step and stores it, unless it was too long.
  void end_step();

  /// Copies of the stored steps, oldest first, without the open step.
  std::vector<RankStep> steps() const;
  /// The busy time of the step that was closed last, even if it was too long to be stored.
  const BusyTime& newest_busy() const { return newest_busy_; }
  /// The number of steps that were too long to be stored.
  std::uint64_t too_long() const { return too_long_; }
  /// The allocated bytes for spans.
  std::size_t bytes() const { return bytes_; }
  /// Drops all steps, but not their memory.
  void clear();

 private:
  /// Allocates space for one more span of the open step. Returns false if the limit does not permit it; the spans of
  /// the open step are dropped then.
  bool make_room();
  /// Frees the memory of other steps, the oldest first, until `wanted` bytes are available or none is left.
  void forget_for(std::size_t wanted);

  std::vector<RankStep> ring_;  // a step in it reuses the memory of an older one
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;     // the capacity of all spans in the ring
  std::size_t next_ = 0;      // the position of the open step, or of the next one
  std::size_t filled_ = 0;    // the number of stored steps before next_
  bool is_too_long_ = false;  // the open step exceeds the limit
  BusyTime shortened_;        // the busy time of the dropped spans of the open step
  BusyTime newest_busy_;
  std::uint64_t too_long_ = 0;
};

/// The newest steps of all ranks of a world. A plain value.
struct Trace {
  Schedule schedule;                            // the lowered schedule that the ranks executed
  int replicas = 1;                             // d
  std::map<std::string, std::string> settings;  // the settings of the run: m, threads per rank, ...
  std::vector<std::vector<RankStep>> ranks;     // by world rank = pipeline rank * d + replica, oldest step first

  friend bool operator==(const Trace&, const Trace&) = default;
};

/// Sets Span::transit_ns of each wait for a boundary message whose transit time is unknown: the time from the start of
/// its SEND on the other rank to its arrival, at least a nanosecond. It is as exact as the conversion of the hosts'
/// clocks. Stays 0 where the trace has no SEND of the step. REQUIRES: all times of `trace` are those of one clock.
void fill_in_transits(Trace& trace);

}  // namespace penstock
