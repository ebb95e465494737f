// Requests that arise in one process, between two steps, and that all processes have to follow at the same step: a
// signal, a clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/world/world.h"

namespace penstock {

/// Why a training should end before its goal, to be resumed later.
struct StopRequest {
  std::string reason;
  int signal = 0;  // that asked for it; 0: none
};

/// What a process requests before a step. A plain value.
struct StepRequests {
  bool save = false;
  std::optional<StopRequest> stop = {};

  /// Adds later ones; the first reason to stop counts.
  void add(const StepRequests& later);
};

/// Steps of one kind take about the same time.
enum class StepKind { of_training, of_test };

/// Ranks of one process agree at every step, at no cost. Processes agree about four times a second, because an
/// agreement waits until the submitted steps are done.
class StepAgreement {
 public:
  /// `world` must outlive it.
  explicit StepAgreement(const World& world);

  /// The requests of all processes: the first stop, and a save if the main process wants one. The same on every
  /// process; none at steps in which they do not agree. Collective: called once for each step. Where the kind of steps
  /// changes, processes agree at once.
  std::optional<StepRequests> agree(const StepRequests& own, StepKind kind);

 private:
  const World& world_;
  bool is_alone_;
  std::uint64_t rounds_ = 0;
  std::int64_t calls_ = 0;
  std::int64_t next_ = 0;  // the call in which processes agree
  std::int64_t last_ = 0;  // the call in which they last did
  StepKind last_kind_ = StepKind::of_training;
  std::int64_t last_ns_ = 0;  // when
};

}  // namespace penstock
