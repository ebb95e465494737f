#include "penstock/trace/svg_canvas.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "penstock/base/error.h"

namespace penstock {
namespace {

std::string escaped(std::string_view content) {
  std::string text;
  for (const char c : content) {
    switch (c) {
      case '&': text += "&amp;"; break;
      case '<': text += "&lt;"; break;
      case '>': text += "&gt;"; break;
      case '"': text += "&quot;"; break;
      // XML has no way to write a control character.
      default: text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return text;
}

const char* anchor_name(Anchor anchor) {
  switch (anchor) {
    case Anchor::start: return "start";
    case Anchor::middle: return "middle";
    case Anchor::end: return "end";
  }
  return "start";
}

}  // namespace

Colour Colour::lightened(double share) const {
  const auto mix = [&](int part) { return static_cast<int>(std::lround(part + (255 - part) * share)); };
  return {mix(red), mix(green), mix(blue)};
}

std::string Colour::text() const {
  std::array<char, 32> hex{};
  std::snprintf(hex.data(), hex.size(), "#%02x%02x%02x", static_cast<unsigned>(red), static_cast<unsigned>(green),
                static_cast<unsigned>(blue));
  return hex.data();
}

std::string shortened(double value, int decimals) {
  std::array<char, 400> digits{};
  std::snprintf(digits.data(), digits.size(), "%.*f", decimals, value);
  std::string text = digits.data();
  if (text.find('.') == std::string::npos) return text;
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

void SvgCanvas::rectangle(const Box& box, const BoxStyle& style) {
  shapes_ += say("<rect x=\"", shortened(box.corner.x), "\" y=\"", shortened(box.corner.y), "\" width=\"",
                 shortened(box.width), "\" height=\"", shortened(box.height), "\" fill=\"", style.fill, "\"");
  if (!style.stroke.empty())
    shapes_ += say(" stroke=\"", style.stroke, "\" stroke-width=\"", shortened(style.stroke_width), "\"");
  shapes_ += style.tooltip.empty() ? "/>\n" : say("><title>", escaped(style.tooltip), "</title></rect>\n");
}

void SvgCanvas::line(Point from, Point to, const LineStyle& style) {
  shapes_ += say("<line x1=\"", shortened(from.x), "\" y1=\"", shortened(from.y), "\" x2=\"", shortened(to.x),
                 "\" y2=\"", shortened(to.y), "\" stroke=\"", style.colour, "\" stroke-width=\"",
                 shortened(style.width), "\"", style.is_dashed ? " stroke-dasharray=\"4 3\"" : "", "/>\n");
}

void SvgCanvas::text(Point at, std::string_view content, const TextStyle& style) {
  shapes_ += say("<text x=\"", shortened(at.x), "\" y=\"", shortened(at.y), "\" font-size=\"", shortened(style.size),
                 "\" text-anchor=\"", anchor_name(style.anchor), "\"", style.is_bold ? " font-weight=\"bold\"" : "",
                 " fill=\"", style.colour, "\">", escaped(content), "</text>\n");
}

std::string SvgCanvas::page(double width, double height) const {
  const std::string w = shortened(width);
  const std::string h = shortened(height);
  return say("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", w, "\" height=\"", h, "\" viewBox=\"0 0 ", w, " ", h,
             "\" font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n", "<rect width=\"",
             w, "\" height=\"", h, "\" fill=\"#ffffff\"/>\n", shapes_, "</svg>\n");
}

}  // namespace penstock
