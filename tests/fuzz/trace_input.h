// The function under test of the fuzzer of trace files. The test that replays its corpus calls it too. It throws if a
// property does not hold. Refusing the input is correct.
#pragma once

#include <string_view>

#include "penstock/base/error.h"
#include "penstock/trace/trace.h"

namespace penstock {

inline void try_trace(std::string_view text) {
  Trace trace;
  try {
    trace = read_trace(text);
  } catch (const DataError&) {
    return;
  }
  require<InternalError>(read_trace(write_trace(trace)) == trace, "the trace does not read back");
  try {
    to_table(account(trace));
    step_svg(trace);
  } catch (const Misuse&) {  // no complete step, or a schedule that cannot run
  }
  try {
    check_order(trace);
  } catch (const ScheduleError&) {  // instructions of another schedule
  }
}

}  // namespace penstock
