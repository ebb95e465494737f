#include "penstock/trace/timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "penstock/base/error.h"
#include "penstock/base/text.h"

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

constexpr double left = 112;  // of time 0; the rows' names stand before it
constexpr double margin = 28;
constexpr double notes_width = 44;
constexpr double title_height = 30;
constexpr double fact_height = 19;
constexpr double legend_height = 43;
constexpr double band_title_height = 26;
constexpr double band_gap = 22;
constexpr double axis_height = 44;
constexpr double largest_label = 11;
constexpr double smallest_label = 6.5;
constexpr double digit_share = 0.58;  // width of a digit, of the size of its letters
constexpr const char* border = "#303030";
constexpr const char* faint = "#c8c8c8";
constexpr const char* quiet = "#505050";

class Drawing {
 public:
  explicit Drawing(const Timeline& timeline) : timeline_(timeline) {
    std::size_t rows = 0;
    for (const Band& band : timeline.bands) {
      longest_ = std::max(longest_, band.length);
      rows += band.rows.size();
    }
    row_height_ = rows <= 16 ? 30 : 22;
    right_ = left + timeline.width;
    label_size_ = size_for_all_labels();
    top_ = title_height + fact_height * static_cast<double>(timeline.facts.size()) + legend_height;
  }

  std::string draw() {
    double bottom = top_;
    for (const Band& band : timeline_.bands) bottom += height_of(band) + band_gap;
    bottom -= band_gap / 2;

    draw_header();
    draw_axis({left, bottom});
    double y = top_;
    for (const Band& band : timeline_.bands) {
      draw_band(band, y);
      y += height_of(band) + band_gap;
    }
    return canvas_.page(right_ + margin + (timeline_.notes.empty() ? 0 : notes_width), bottom + axis_height);
  }

 private:
  double x_of(double time) const { return left + (longest_ > 0 ? time / longest_ * timeline_.width : 0); }
  double height_of(const Band& band) const {
    return (band.title.empty() ? 0 : band_title_height) + row_height_ * static_cast<double>(band.rows.size());
  }

  /// The largest label size at which the labels of all boxes with work fit, except those for which every size is too
  /// large.
  double size_for_all_labels() const {
    double size = largest_label;
    for (const Band& band : timeline_.bands)
      for (const Row& row : band.rows)
        for (const Piece& piece : row.pieces)
          if (!piece.is_thin && !piece.label.empty()) {
            const double width = x_of(piece.time.end) - x_of(piece.time.begin);
            const double fitting = (width - 2) / (digit_share * static_cast<double>(piece.label.size()));
            if (fitting >= smallest_label) size = std::min(size, fitting);
          }
    return size;
  }

  void draw_header() {
    canvas_.text({left, title_height}, timeline_.title, {.size = 17, .is_bold = true});
    double y = title_height;
    for (const std::string& fact : timeline_.facts)
      canvas_.text({left, y += fact_height}, fact, {.size = 12, .colour = quiet});
    draw_legend(y + 13);
  }

  /// The kinds that occur in the picture, with their shades.
  void draw_legend(double y) {
    double x = left;
    const auto add = [&](const char* name, const std::vector<Colour>& shades) {
      const double width = 18.0 / static_cast<double>(std::min<std::size_t>(shades.size(), 2));
      for (const Colour& shade : shades) {
        canvas_.rectangle({{x, y}, width, 12}, {.fill = shade.text(), .stroke = border});
        x += width;
      }
      canvas_.text({x + 6, y + 10}, name, {.size = 12});
      x += 24 + 6.6 * static_cast<double>(std::string_view(name).size());
    };
    bool has_shades = false;
    for (const Kind* kind : kinds()) {
      const std::vector<Colour> shades = shades_of(kind);
      if (shades.empty()) continue;
      add(kind->name, shades);
      has_shades = has_shades || shades.size() > 1;
    }
    add("idle", {idle_colour});
    std::string remark = has_shades ? "lighter: a later stage of its rank" : "";
    if (has(&Row::frames)) remark += say(remark.empty() ? "" : "; ", "framed: may overlap");
    if (has(&Row::path)) remark += say(remark.empty() ? "" : "; ", "red: the critical path");
    if (!remark.empty()) canvas_.text({x, y + 10}, remark, {.size = 12, .colour = quiet});
  }

  bool has(std::vector<TimeSpan> Row::*boxes) const {
    return std::any_of(timeline_.bands.begin(), timeline_.bands.end(), [&](const Band& band) {
      return std::any_of(band.rows.begin(), band.rows.end(), [&](const Row& row) { return !(row.*boxes).empty(); });
    });
  }

  /// The colours in which `kind` occurs, dark to light.
  std::vector<Colour> shades_of(const Kind* kind) const {
    std::vector<Colour> shades;
    for (const Band& band : timeline_.bands)
      for (const Row& row : band.rows)
        for (const Piece& piece : row.pieces)
          if (piece.kind == kind && std::find(shades.begin(), shades.end(), piece.colour) == shades.end())
            shades.push_back(piece.colour);
    const auto light = [](const Colour& colour) { return colour.red + colour.green + colour.blue; };
    std::sort(shades.begin(), shades.end(), [&](const Colour& a, const Colour& b) { return light(a) < light(b); });
    constexpr std::size_t most = 4;
    if (kind->colour.is_grey()) shades.resize(std::min<std::size_t>(shades.size(), 1));
    if (shades.size() > most) shades = {shades.front(), shades[shades.size() / 2], shades.back()};
    return shades;
  }

  void draw_axis(Point origin) {
    const double tick = tick_distance(longest_);
    const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(tick) + 1e-9)));
    for (int i = 0; i * tick <= longest_ * (1 + 1e-9); ++i) {
      const double x = x_of(i * tick);
      canvas_.line({x, top_ - 4}, {x, origin.y}, {.colour = "#e6e6e6"});
      canvas_.line({x, origin.y}, {x, origin.y + 5}, {});
      canvas_.text({x, origin.y + 19}, shortened(i * tick, decimals), {.size = 12, .anchor = Anchor::middle});
    }
    canvas_.line(origin, {right_, origin.y}, {});
    canvas_.text({right_, origin.y + 36}, timeline_.time_unit.empty() ? "time" : "time in " + timeline_.time_unit,
                 {.size = 12, .anchor = Anchor::end});
    if (!timeline_.notes.empty()) canvas_.text({right_ + 8, top_ - 8}, timeline_.notes, {.size = 10, .colour = quiet});
  }

  void draw_band(const Band& band, double y) {
    if (!band.title.empty()) {
      canvas_.text({left, y + 16}, band.title, {.size = 13, .is_bold = true});
      y += band_title_height;
    }
    for (const Row& row : band.rows) {
      draw_row(row, y, x_of(band.length));
      y += row_height_;
    }
  }

  void draw_row(const Row& row, double y, double end) {
    const double height = row_height_ - 4;
    const double middle = y + height / 2;
    const bool is_tall = row_height_ > 24;
    canvas_.text({left - 10, is_tall ? middle - 2 : middle + 4}, row.name, {.size = 12, .anchor = Anchor::end});
    if (is_tall)
      canvas_.text({left - 10, middle + 10}, row.place, {.size = 10, .anchor = Anchor::end, .colour = quiet});
    canvas_.rectangle({{left, y}, end - left, height}, {.fill = idle_colour.text(), .stroke = faint});
    for (const Piece& piece : row.pieces) draw_piece(piece, y);
    for (const TimeSpan& frame : row.frames)
      canvas_.rectangle({{x_of(frame.begin), y}, x_of(frame.end) - x_of(frame.begin), height},
                        {.fill = "none", .stroke = "#000000", .stroke_width = 2});
    for (const TimeSpan& box : row.path)
      canvas_.rectangle({{x_of(box.begin), y}, x_of(box.end) - x_of(box.begin), height},
                        {.fill = "none", .stroke = "#c62828", .stroke_width = 2});
    if (!row.note.empty()) canvas_.text({right_ + 8, middle + 4}, row.note, {.size = 11, .colour = quiet});
  }

  void draw_piece(const Piece& piece, double y) {
    const double x = x_of(piece.time.begin);
    const double width = x_of(piece.time.end) - x;
    const double height = row_height_ - 4;
    const double inset = piece.is_thin ? height / 4 : 0;
    const std::string tooltip =
        say(piece.instruction, ": ", shortened(piece.time.begin, 3), " to ", shortened(piece.time.end, 3),
            timeline_.time_unit.empty() ? "" : " ", timeline_.time_unit);
    canvas_.rectangle({{x, y + inset}, width, height - 2 * inset},
                      {.fill = piece.colour.text(), .stroke = width >= 2.5 ? border : "", .tooltip = tooltip});
    if (digit_share * label_size_ * static_cast<double>(piece.label.size()) + 1.9 <= width)
      canvas_.text({x + width / 2, y + height / 2 + 0.36 * label_size_}, piece.label,
                   {.size = label_size_, .anchor = Anchor::middle});
  }

  const Timeline& timeline_;
  double longest_ = 0;
  double row_height_ = 0;
  double right_ = 0;
  double label_size_ = 0;
  double top_ = 0;  // of the first band
  SvgCanvas canvas_;
};

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

// The colours differ in a grey print and for colour-blind readers.
constexpr Kind forward_kind{"F forward", {0x86, 0xb6, 0xe8}};
constexpr Kind backward_kind{"B backward", {0xe0, 0x7b, 0x39}};
constexpr Kind input_grad_kind{"I input gradient", {0xf6, 0xcd, 0x5a}};
constexpr Kind weight_grad_kind{"W weight gradient", {0x4a, 0x9a, 0x7c}};
constexpr Kind update_kind{"update", {0x88, 0x88, 0x88}};
constexpr Kind message_kind{"messages", {0x50, 0x50, 0x50}};
constexpr Colour idle_colour{0xef, 0xef, 0xef};

std::span<const Kind* const> kinds() {
  static constexpr std::array all = {&forward_kind,     &backward_kind, &input_grad_kind,
                                     &weight_grad_kind, &update_kind,   &message_kind};
  return all;
}

const Kind& kind_of(Op op) {
  switch (op) {
    case Op::forward: return forward_kind;
    case Op::backward: return backward_kind;
    case Op::input_grad: return input_grad_kind;
    case Op::weight_grad: return weight_grad_kind;
    default: return is_step_wide(op) ? update_kind : message_kind;
  }
}

Colour shade_of(const Kind& kind, const std::vector<StageId>& stages, StageId stage) {
  if (stages.size() < 2) return kind.colour;
  const double lightest = stages.size() == 2 ? 0.45 : 0.6;
  const auto chunk = std::find(stages.begin(), stages.end(), stage) - stages.begin();
  return kind.colour.lightened(lightest * static_cast<double>(chunk) / static_cast<double>(stages.size() - 1));
}

Piece piece_of(const Instruction& instruction, const std::vector<StageId>& stages, TimeSpan time) {
  const Kind& kind = kind_of(instruction.op());
  std::string label;
  if (is_compute(instruction.op())) label = std::to_string(instruction.first().value());
  if (instruction.is_fused()) label += say("-", instruction.last().value());
  if (is_step_wide(instruction.op())) label = to_string(instruction.op());
  return {time,
          to_string(instruction),
          label,
          &kind,
          shade_of(kind, stages, instruction.stage()),
          is_step_wide(instruction.op())};
}

Row row_of(std::size_t rank, const std::vector<StageId>& stages) {
  constexpr std::size_t most = 4;  // stages that fit beside the row
  Row row{say("rank ", rank), stages.size() == 1 ? "stage " : "stages ", {}, {}, {}, {}};
  row.place += stages.size() > most ? say(stages[0].value(), ",", stages[1].value(), "...", stages.back().value())
                                    : listed(stages, ",", &StageId::value);
  return row;
}

double tick_distance(double length) {
  const double rough = length > 0 ? length / 10 : 1;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= rough) return factor * power;
  return 10 * power;
}

std::string draw(const Timeline& timeline) { return Drawing(timeline).draw(); }

}  // namespace penstock
