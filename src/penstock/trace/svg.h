// One step as a picture that reads well on paper: predicted above measured, one row per rank, every F and B labelled
// with its micro-batch, idle time left white, a time axis and a legend.
#pragma once

#include <string>

#include "penstock/trace/recorder.h"

namespace penstock {

/// The median step of `trace` over its own prediction. Throws DataError when the trace holds no complete step.
std::string step_svg(const Trace& trace);

}  // namespace penstock
