// Transit times of messages between hosts, which no rank can measure by itself: their clocks differ.
#pragma once

#include "penstock/trace/recorder.h"

namespace penstock {

/// Sets Span::transit_ns of each wait for a boundary message whose transit time is unknown: the time from the begin of
/// its SEND on the other rank to its arrival, at least a nanosecond. It is as exact as the conversion of the hosts'
/// clocks. Stays 0 where the trace has no SEND of the step. REQUIRES: all times of `trace` are those of one clock.
void fill_in_transits(Trace& trace);

}  // namespace penstock
