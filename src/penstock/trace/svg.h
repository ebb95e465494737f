// A picture of one step for documents: the predicted step above the measured one, one row per rank, every F and B
// labelled with its micro-batch, a time axis and a legend.
#pragma once

#include <string>

#include "penstock/trace/recorder.h"

namespace penstock {

/// The step of `trace` with the median makespan, and its prediction (account()), as SVG text. Throws DataError if the
/// trace has no complete step.
std::string step_svg(const Trace& trace);

}  // namespace penstock
