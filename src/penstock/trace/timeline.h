// Rows of coloured boxes over one axis of time, under a title and a legend: the look that all pictures of a step
// share, be it one that was measured or one that is only planned. Inside this module only.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "penstock/schedule/order.h"
#include "penstock/trace/svg_canvas.h"

namespace penstock {

/// What a box shows by its colour.
struct Kind {
  const char* name;
  Colour colour;
};

/// F, B, I, W, update and messages; in the order of the legend.
std::span<const Kind* const> kinds();
const Kind& kind_of(Op op);
extern const Colour idle_colour;

/// The colour of an instruction of `stage`: a rank's later stages are drawn lighter, so that chunks can be told apart.
Colour shade_of(const Kind& kind, const std::vector<StageId>& stages, StageId stage);

/// Since the band's begin.
struct TimeSpan {
  double begin = 0;
  double end = 0;
};

/// One box of a row.
struct Piece {
  TimeSpan time;
  std::string instruction;  // for the tooltip
  std::string label;        // shown where it fits
  const Kind* kind = nullptr;
  Colour colour;
  bool is_thin = false;  // no work on a micro-batch: it is to stay in the background
};

/// What `word`, of a rank with these stages, looks like.
Piece piece_of(const Instruction& instruction, const std::vector<StageId>& stages, TimeSpan time);

struct Row {
  std::string name;
  std::string place;  // which stages, which replica
  std::string note;   // at its end
  std::vector<Piece> pieces;
  std::vector<TimeSpan> frames;  // drawn around boxes that belong together
};

/// An empty row of the rank of these stages.
Row row_of(std::size_t rank, const std::vector<StageId>& stages);

/// Rows under one title.
struct Band {
  std::string title;  // none: no space for it either
  double length = 0;
  std::vector<Row> rows;
};

struct Timeline {
  std::string title;
  std::vector<std::string> facts;  // lines below it
  std::vector<Band> bands;
  std::string time_unit;  // "ms"; none where times are plain numbers
  std::string notes;      // what the rows' notes are; none where they have none
  double width = 0;       // of the axis, in pixels
};

/// The picture as SVG that reads well on paper, too: labels are of one size, and stand only where they fit.
std::string draw(const Timeline& timeline);

/// The distance of ticks on an axis of this length: at most ten steps of 1, 2 or 5 times a power of ten.
double tick_distance(double length);

}  // namespace penstock
