// The JSON values of a trace file (docs/trace_format.md), used both to write a file and to check one that was read.
// Inside this module only.
#pragma once

#include <functional>

#include <nlohmann/json.hpp>

#include "penstock/trace/recorder.h"

namespace penstock {

/// The version of the format, incremented when a file of the old format would be misread.
constexpr int trace_format = 1;

/// Throws DataError if `trace` is inconsistent: steps of a number of ranks other than p * d, or spans out of order.
void require_trace(const Trace& trace);

/// The object "penstock": the parts of a trace that are not events.
nlohmann::json header_document(const Trace& trace);

/// Calls `visit` for every element of "traceEvents", in order.
void for_each_event(const Trace& trace, const std::function<void(const nlohmann::json&)>& visit);

}  // namespace penstock
