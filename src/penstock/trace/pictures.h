// Pictures of a schedule and of a measured step. A schedule is drawn in the style of the papers: one row per rank, a
// coloured box with its micro-batch for every F, B, I and W, lighter colours for later stages of a rank, grey for idle
// time, and the makespan, bubble and memory above. The times are simulate()'s. REDUCE, NORM and messages are not drawn,
// because they occupy no time of a rank; STEP is a thin box if the update has a cost. An overlap pair has a frame.
#pragma once

#include <cstddef>
#include <string>

#include "penstock/schedule/simulate.h"
#include "penstock/trace/recorder.h"

namespace penstock {

/// The upper bounds of instructions in a picture: more boxes cannot be distinguished, or are too slow in a browser.
constexpr std::size_t most_boxes_of_svg = 20'000;
constexpr std::size_t most_boxes_of_html = 300'000;

/// The unit of live activations wherever they are shown: a micro-batch of a chunk counts 1/v, and from its I to its W
/// the weight share of that.
inline constexpr const char* activation_unit = "micro-batches of a whole rank";

/// "live activations at most 3 3 3 per rank, in micro-batches of a whole rank": Simulation::peak_activations, as the
/// pictures show them. If W is separated from I, also the count without a weight share, to which the activation bound
/// of a schedule refers.
std::string live_activations(const Schedule& schedule, double weight_share);

struct PictureOptions {
  bool marks_critical_path = false;  // a red border around each box of critical_path()
};

/// A picture as SVG text, for documents. Throws like simulate(), and ConfigError for a schedule of more than
/// `most_boxes_of_svg` instructions.
std::string schedule_svg(const Schedule& schedule, const StageCosts& costs, const PictureOptions& options = {});

/// A self-contained HTML page with zoom and pan, which shows the dependencies of each box. Contains schedule_json()
/// unchanged. Throws like schedule_svg(), for more than `most_boxes_of_html` instructions.
std::string schedule_html(const Schedule& schedule, const StageCosts& costs);

/// The version of schedule_json(), incremented when a program that reads the old format would misread the new one.
constexpr int schedule_json_version = 1;

/// A schedule with its simulated times for other programs (docs/schedule_format.md): one JSON object, with every slot
/// on its own line. Throws like simulate().
std::string schedule_json(const Schedule& schedule, const StageCosts& costs);

/// The step of `trace` with the median makespan, below its prediction (account()), as SVG text: one row per rank, every
/// F and B labelled with its micro-batch. Throws DataError if the trace has no complete step.
std::string step_svg(const Trace& trace);

}  // namespace penstock
