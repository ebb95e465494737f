// A trace as Chrome / Perfetto JSON (open it at https://ui.perfetto.dev or chrome://tracing): one process per rank,
// compute, waits and messages on tracks of their own, so that events of one track never overlap. The file also holds
// the schedule and settings, so that read_trace(write_trace(t)) == t. docs/trace_format.md.
#pragma once

#include <string>
#include <string_view>

#include "penstock/trace/recorder.h"

namespace penstock {

std::string write_trace(const Trace& trace);
/// Throws DataError for anything that write_trace does not write.
Trace read_trace(std::string_view json);

}  // namespace penstock
