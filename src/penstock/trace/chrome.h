// Traces as Chrome / Perfetto JSON, for https://ui.perfetto.dev or chrome://tracing (docs/trace_format.md). The file
// has one process per rank, with separate tracks for compute, waits and messages, so that events of one track never
// overlap. It also contains the schedule and the settings.
#pragma once

#include <string>
#include <string_view>

#include "penstock/trace/recorder.h"

namespace penstock {

/// `trace` as JSON text; read_trace(write_trace(t)) == t if all settings are UTF-8 text. Throws DataError for a trace
/// that is inconsistent: steps of a wrong number of ranks, or spans out of order.
std::string write_trace(const Trace& trace);
/// Reads a trace. Throws DataError for any text that write_trace() does not write.
Trace read_trace(std::string_view json);

}  // namespace penstock
