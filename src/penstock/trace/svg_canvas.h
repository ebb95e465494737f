// The few shapes that a picture is made of, as SVG text. Inside this module only.
#pragma once

#include <string>
#include <string_view>

namespace penstock {

/// A place on the page, in pixels from its top left corner.
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
  std::string_view tooltip = {};  // shows where a viewer points at the box; none: nothing does
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

  /// 0: this colour; 1: white.
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
  /// `at` is where the baseline begins, or its middle or end. `words` may hold any characters.
  void text(Point at, std::string_view instructions, const TextStyle& style);

  /// The whole picture on white.
  std::string page(double width, double height) const;

 private:
  std::string shapes_;
};

/// `value` in decimal, without trailing zeros: the way numbers stand in the picture and on its axis.
std::string shortened(double value, int decimals = 2);

}  // namespace penstock
