// Draws rows of coloured boxes over a time axis as SVG text, with a title and a legend. All pictures of a step,
// measured or simulated, use it. Inside this module only.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "penstock/schedule/instruction.h"

namespace penstock {

/// A position on the page, in pixels from its top left corner.
struct Point {
  double x = 0;
  double y = 0;
};

struct Box {
  Point corner;  // top left
  double width = 0;
  double height = 0;
};

struct BoxStyle {
  std::string_view fill;
  std::string_view stroke = {};  // none: no border
  double stroke_width = 0.6;
  std::string_view tooltip = {};  // shown when the pointer is over the box; empty: no tooltip
};

enum class Anchor { start, middle, end };

struct TextStyle {
  double size = 12;
  Anchor anchor = Anchor::start;
  bool is_bold = false;
  std::string_view colour = "#000000";
};

struct LineStyle {
  std::string_view colour = "#000000";
  double width = 1;
  bool is_dashed = false;
};

/// An opaque colour.
struct Colour {
  int red = 0;
  int green = 0;
  int blue = 0;

  /// A mixture of this colour and white: 0 gives this colour, 1 gives white.
  Colour lightened(double share) const;
  bool is_grey() const { return red == green && green == blue; }
  std::string text() const;  // "#8fb8de"

  friend bool operator==(const Colour&, const Colour&) = default;
};

/// Numbers are written with at most two decimals, so that a picture of the same step is the same text on every machine.
class SvgCanvas {
 public:
  void rectangle(const Box& box, const BoxStyle& style);
  void line(Point from, Point to, const LineStyle& style);
  /// `at` is the start, the middle or the end of the baseline, by TextStyle::anchor. `content` may have any characters;
  /// they are escaped.
  void text(Point at, std::string_view content, const TextStyle& style);

  /// The whole picture on white.
  std::string page(double width, double height) const;

 private:
  std::string shapes_;
};

/// `value` in decimal without trailing zeros, as in pictures and on axes.
std::string shortened(double value, int decimals = 2);

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

/// A time interval since the start of the band.
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
  std::vector<TimeSpan> path;    // boxes of the critical path, with a red border
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
