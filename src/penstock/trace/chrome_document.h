// The JSON values that a trace file is made of, once for writing it and for checking what was read. Inside this module
// only. docs/trace_format.md tells the form.
#pragma once

#include <functional>

#include <nlohmann/json.hpp>

#include "penstock/trace/recorder.h"

namespace penstock {

/// The number of the form: raised when a file of the old form would be misread.
constexpr int trace_format = 1;

/// Throws DataError when `trace` is none: steps that are not those of p * d ranks, or spans out of order.
void require_trace(const Trace& trace);

/// The object "penstock": what the events do not say.
nlohmann::json header_document(const Trace& trace);

/// Every element of "traceEvents", in order.
void for_each_event(const Trace& trace, const std::function<void(const nlohmann::json&)>& visit);

}  // namespace penstock
