// Checks afterwards that the instructions of a trace ran in an order that their dependencies permit
// (schedule/dependencies.h). The executor waits for what an instruction needs; this compares only times, so that it
// shares nothing with the executor but the dependencies.
//
//   an instruction    begins after the end of every instruction on its rank that it needs
//   a wait (RECV)     ends after the start of the SEND of its message, on whichever rank
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "penstock/trace/recorder.h"

namespace penstock {

struct OrderCheck {
  std::uint64_t steps = 0;         // steps of all replicas that were checked
  std::uint64_t instructions = 0;  // in them, with the waits
  /// What is wrong with the first instruction that ran too early, in order of steps and ranks; none: all is well.
  std::optional<std::string> violation = std::nullopt;
};

/// Checks all steps that every rank of a replica has recorded. `tolerance_ns` is the largest error of the ranks'
/// clocks: 0 on one host, and some 100,000 where ranks of several hosts took part. Throws ScheduleError for
/// instructions that do not fit the trace's schedule, as those before Pipeline::freeze().
OrderCheck check_order(const Trace& trace, std::int64_t tolerance_ns = 0);

}  // namespace penstock
