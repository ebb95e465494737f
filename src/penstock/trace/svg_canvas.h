// Draws the shapes of a picture as SVG text. Inside this module only.
#pragma once

#include <string>
#include <string_view>

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
  /// `at` is the begin, the middle or the end of the baseline, by TextStyle::anchor. `content` may have any characters;
  /// they are escaped.
  void text(Point at, std::string_view content, const TextStyle& style);

  /// The whole picture on white.
  std::string page(double width, double height) const;

 private:
  std::string shapes_;
};

/// `value` in decimal without trailing zeros, as in pictures and on axes.
std::string shortened(double value, int decimals = 2);

}  // namespace penstock
