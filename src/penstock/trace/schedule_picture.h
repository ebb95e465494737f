// A schedule as the papers draw it: one row per rank, every F, B, I and W in its colour with its micro-batch, later
// stages of a rank lighter, idle time grey, and the figures that it comes to above. Boxes are the instructions of the
// schedule itself, at the times that simulate() gives them: REDUCE, NORM and messages take none and are not drawn,
// STEP is a thin box where the update costs something. A pair that may overlap stands in one frame.
#pragma once

#include <cstddef>
#include <string>

#include "penstock/schedule/simulate.h"

namespace penstock {

/// More boxes than these nobody can see in a picture, or take in by a browser.
constexpr std::size_t most_boxes_of_svg = 20'000;
constexpr std::size_t most_boxes_of_html = 300'000;

/// What live activations are counted in, wherever they are shown: a chunk's micro-batch counts 1/v, and from its I to
/// its W the weight share of that.
inline constexpr const char* activation_unit = "micro-batches of a whole rank";

/// "live activations at most 3 3 3 per rank, in micro-batches of a whole rank": Simulation::peak_activations, as the
/// pictures show them. Where W comes later than I, also the count without a weight share, which is what a schedule's
/// activation bound is about. Throws ScheduleError when the schedule deadlocks.
std::string live_activations(const Schedule& schedule, Costs costs);

/// For documents and papers. Throws ScheduleError when the schedule deadlocks, ConfigError for costs of a wrong length and
/// for a schedule of more than `most_boxes_of_svg` instructions.
std::string schedule_svg(const Schedule& schedule, const Costs& costs);

/// One page that needs nothing besides itself, for a browser: zoom, pan, and what each box is and waits for. Holds
/// schedule_json() as it is. Throws like schedule_svg, for more than `most_boxes_of_html` instructions.
std::string schedule_html(const Schedule& schedule, const Costs& costs);

}  // namespace penstock
