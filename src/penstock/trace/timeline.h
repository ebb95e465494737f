// Draws rows of coloured boxes over a time axis, with a title and a legend. All pictures of a step, measured or
// simulated, use it. Inside this module only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "penstock/schedule/order.h"
#include "penstock/trace/svg_canvas.h"

namespace penstock {

/// A kind of box, with its name in the legend.
struct Kind {
  const char* name;
  Colour colour;
};

/// F, B, I, W, update and messages, in the order of the legend.
std::span<const Kind* const> kinds();
const Kind& kind_of(Op op);
extern const Colour idle_colour;

/// The colour of an instruction of `stage`. Later stages of a rank are lighter, so that chunks can be distinguished.
Colour shade_of(const Kind& kind, const std::vector<StageId>& stages, StageId stage);

/// A time interval since the begin of the band.
struct TimeSpan {
  double begin = 0;
  double end = 0;
};

/// One box of a row.
struct Piece {
  TimeSpan time;
  std::string instruction;  // for the tooltip
  std::string label;        // shown if it fits
  const Kind* kind = nullptr;
  Colour colour;
  bool is_thin = false;  // drawn with less height: not work on a micro-batch
};

/// The box of `instruction` on a rank with these stages.
Piece piece_of(const Instruction& instruction, const std::vector<StageId>& stages, TimeSpan time);

struct Row {
  std::string name;
  std::string place;  // the stages and the replica
  std::string note;   // at the end of the row
  std::vector<Piece> pieces;
  std::vector<TimeSpan> frames;  // drawn around boxes that belong together
};

/// A row without boxes for a rank with these stages.
Row row_of(std::size_t rank, const std::vector<StageId>& stages);

/// Rows under one title.
struct Band {
  std::string title;  // empty: takes no space
  double length = 0;
  std::vector<Row> rows;
};

struct Timeline {
  std::string title;
  std::vector<std::string> facts;  // lines below it
  std::vector<Band> bands;
  std::string time_unit;  // "ms"; empty if times have no unit
  std::string notes;      // explains the rows' notes; empty if there are none
  double width = 0;       // of the axis, in pixels
};

/// The picture as SVG text. All labels have the same size; a label that does not fit into its box is left out.
std::string draw(const Timeline& timeline);

/// The distance of ticks on an axis of this length: 1, 2 or 5 times a power of ten, with at most ten intervals.
double tick_distance(double length);

}  // namespace penstock
