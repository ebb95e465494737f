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

/// Keeps the newest steps of one rank. Written by that rank's thread alone; read when the rank is at rest.
class Recorder {
 public:
  /// Throws ConfigError for 0 steps.
  explicit Recorder(std::size_t kept_steps = 64);

  /// Opens a step; the oldest one is forgotten when the recorder is full. A step that is opened while another one is
  /// open (because an exception ended that one) takes its place.
  void begin_step(std::uint64_t step);
  /// Adds to the open step. Allocates only until the steps have once been as long as this one.
  void note(const Span& span) { ring_[next_].spans.push_back(span); }
  /// Closes the step: it is kept from now on.
  void end_step();

  /// The kept steps, oldest first. The open step is not among them.
  std::vector<RankStep> steps() const;
  /// The step that was closed last. There must be one.
  const RankStep& newest() const { return ring_[(next_ + ring_.size() - 1) % ring_.size()]; }
  /// Forgets all steps, and keeps their memory.
  void clear();

 private:
  std::vector<RankStep> ring_;  // memory of old steps is used again
  std::size_t next_ = 0;        // the open step, or where the next one will be
  std::size_t filled_ = 0;      // how many closed steps lie before next_
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
