// What one rank did, noted while it does it. Always on: noting a span costs two clock readings and a store.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "penstock/schedule/schedule.h"

namespace penstock {

/// Nanoseconds of the steady clock; the same clock for all processes of one host.
inline std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

enum class Activity : std::uint8_t {
  compute,      // F, B, I, W
  wait,         // nothing to do before a message arrives; the instruction is its RECV (or REDUCE)
  communicate,  // handing a message over or taking it in
  update        // REDUCE, NORM and STEP's own work
};

struct Span {
  Instruction instruction;
  Activity activity = Activity::compute;
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t transit_ns = 0;  // for a wait: how long the message was on its way, 0 where unknown
  /// For a wait: how long the message had been there when the rank ran again, at the wait's end; 0 where unknown.
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

/// What a rank was busy with, in one step: from its first compute or update instruction to its last.
struct BusyTime {
  std::int64_t begin_ns = 0;  // 0: it was busy with nothing
  std::int64_t end_ns = 0;
  std::int64_t busy_ns = 0;

  void add(const Span& span) {
    if (span.activity != Activity::compute && span.activity != Activity::update) return;
    if (begin_ns == 0) begin_ns = span.begin_ns;
    end_ns = span.end_ns;
    busy_ns += span.end_ns - span.begin_ns;
  }
};

/// Keeps the newest steps of one rank, as far as they fit into a number of bytes. Written by that rank's thread alone;
/// read when the rank is at rest.
class Recorder {
 public:
  /// What the spans of a rank take at most: some 500,000 of them, as those of 64 steps of 2,000 micro-batches.
  static constexpr std::size_t default_bytes = std::size_t{32} << 20;

  /// At most `kept_steps` steps, whose spans take at most `most_bytes`. Throws ConfigError for 0 steps.
  explicit Recorder(std::size_t kept_steps = 64, std::size_t most_bytes = default_bytes);

  /// Opens a step; the oldest one is forgotten when the recorder is full. A step that is opened while another one is
  /// open (because an exception ended that one) takes its place.
  void begin_step(std::uint64_t step);
  /// Adds to the open step. Allocates only until the steps have once been as long as this one. Where the bytes do not
  /// suffice the oldest steps are forgotten; of a step that is too long even alone, only its busy time is kept.
  void note(const Span& span) {
    std::vector<Span>& spans = ring_[next_].spans;
    if (spans.size() == spans.capacity() && !make_room()) return shortened_.add(span);
    spans.push_back(span);
  }
  /// Closes the step: it is kept from now on, unless it was too long.
  void end_step();

  /// The kept steps, oldest first. The open step is not among them.
  std::vector<RankStep> steps() const;
  /// Of the step that was closed last, kept or not.
  const BusyTime& newest_busy() const { return newest_busy_; }
  /// Steps that were too long to be kept.
  std::uint64_t too_long() const { return too_long_; }
  /// What spans take now.
  std::size_t bytes() const { return bytes_; }
  /// Forgets all steps, and keeps their memory.
  void clear();

 private:
  /// Space for one more span of the open step; false where there is none, and then the step's spans are gone.
  bool make_room();
  /// Gives up the memory of other steps, the oldest first, until `wanted` bytes are free or none is left.
  void forget_for(std::size_t wanted);

  std::vector<RankStep> ring_;  // memory of old steps is used again
  std::size_t most_bytes_;
  std::size_t bytes_ = 0;     // that the ring's spans have space for
  std::size_t next_ = 0;      // the open step, or where the next one will be
  std::size_t filled_ = 0;    // how many closed steps lie before next_
  bool is_too_long_ = false;  // the open step
  BusyTime shortened_;        // of what the open step could not keep
  BusyTime newest_busy_;
  std::uint64_t too_long_ = 0;
};

/// What a whole world did: the newest steps of every rank. A plain value.
struct Trace {
  Schedule schedule;                            // the lowered schedule that was obeyed
  int replicas = 1;                             // d
  std::map<std::string, std::string> settings;  // what a comparison needs to know: m, threads per rank, ...
  std::vector<std::vector<RankStep>> ranks;     // by world rank = pipeline rank * d + replica, oldest step first

  friend bool operator==(const Trace&, const Trace&) = default;
};

}  // namespace penstock
