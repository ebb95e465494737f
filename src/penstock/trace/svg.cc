#include "penstock/trace/svg.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "penstock/base/error.h"
#include "penstock/trace/account.h"
#include "penstock/trace/complete_steps.h"
#include "penstock/trace/svg_canvas.h"

namespace penstock {
namespace {

constexpr double page_width = 1120;
constexpr double left = 112;    // of time 0; the rows' names stand before it
constexpr double right = 1092;  // of the end of the longer band
constexpr double header_height = 92;
constexpr double band_title_height = 26;
constexpr double band_gap = 22;
constexpr double axis_height = 44;
constexpr double label_size = 11;
constexpr double digit_width = 6.3;  // of a digit at label_size
constexpr const char* border = "#303030";
constexpr const char* faint = "#c8c8c8";
constexpr const char* quiet = "#505050";

/// One coloured piece of a row. Milliseconds since the band's begin.
struct Piece {
  double begin = 0;
  double end = 0;
  std::string word;   // for the tooltip
  std::string label;  // shown where it fits
  Colour colour;
  bool is_message = false;
};

struct Row {
  std::string name;
  std::string place;  // which stages, which replica
  std::vector<Piece> pieces;
};

/// Rows under one title: what was predicted, or what was measured.
struct Band {
  std::string title;
  double length = 0;  // milliseconds
  std::vector<Row> rows;
};

struct Kind {
  const char* name;
  Colour colour;
};

// Apart in grey too: pictures are printed.
constexpr Kind forward_kind{"F forward", {0xa9, 0xcd, 0xee}};
constexpr Kind backward_kind{"B backward", {0xe9, 0x93, 0x55}};
constexpr Kind input_grad_kind{"I input gradient", {0xf7, 0xdc, 0x90}};
constexpr Kind weight_grad_kind{"W weight gradient", {0x6d, 0xb0, 0x84}};
constexpr Kind update_kind{"update", {0x88, 0x88, 0x88}};
constexpr Kind message_kind{"messages", {0x50, 0x50, 0x50}};

const Kind& kind_of(Op op) {
  switch (op) {
    case Op::forward: return forward_kind;
    case Op::backward: return backward_kind;
    case Op::input_grad: return input_grad_kind;
    case Op::weight_grad: return weight_grad_kind;
    default: return is_step_wide(op) ? update_kind : message_kind;
  }
}

std::string label_of(const Instruction& word) {
  if (!is_compute(word.op())) return is_step_wide(word.op()) ? to_string(word.op()) : "";
  const std::string first = std::to_string(word.first().value());
  return word.is_fused() ? say(first, "-", word.last().value()) : first;
}

/// A rank's later stages are drawn lighter, so that chunks can be told apart.
double lightness(const std::vector<StageId>& stages, StageId stage) {
  if (stages.size() < 2) return 0;
  const auto chunk = std::find(stages.begin(), stages.end(), stage) - stages.begin();
  return 0.6 * static_cast<double>(chunk) / static_cast<double>(stages.size() - 1);
}

class Picture {
 public:
  explicit Picture(const Trace& trace) : trace_(trace), account_(account(trace)) {
    longest_ = std::max(account_.predicted_ms, account_.measured_ms);
    bands_ = {predicted(), measured()};
    const std::size_t row_count = bands_[0].rows.size() + bands_[1].rows.size();
    row_height_ = row_count <= 16 ? 30 : 22;
  }

  std::string draw() {
    double bottom = header_height;
    for (const Band& band : bands_) bottom += band_title_height + height_of(band) + band_gap;
    bottom -= band_gap / 2;

    draw_header();
    draw_axis({left, bottom});
    double y = header_height;
    for (const Band& band : bands_) {
      draw_band(band, y);
      y += band_title_height + height_of(band) + band_gap;
    }
    return canvas_.page(page_width, bottom + axis_height);
  }

 private:
  double x_of(double ms) const { return left + (longest_ > 0 ? ms / longest_ * (right - left) : 0); }
  double height_of(const Band& band) const { return row_height_ * static_cast<double>(band.rows.size()); }

  Row row_of(std::size_t rank, const std::vector<StageId>& stages, int replicas) const {
    constexpr std::size_t most = 4;  // that fit beside the row
    Row row{say("rank ", rank), stages.size() == 1 ? "stage " : "stages ", {}};
    for (std::size_t i = 0; i < stages.size() && stages.size() <= most; ++i)
      row.place += say(i > 0 ? "," : "", stages[i].value());
    if (stages.size() > most)
      row.place += say(stages[0].value(), ",", stages[1].value(), "...", stages.back().value());
    if (replicas > 1) row.place += say(", replica ", rank % static_cast<std::size_t>(replicas));
    return row;
  }

  Piece piece_of(const Instruction& word, const std::vector<StageId>& stages) {
    const Kind& kind = kind_of(word.op());
    if (std::find(kinds_.begin(), kinds_.end(), &kind) == kinds_.end()) kinds_.push_back(&kind);
    return {0, 0, to_string(word), label_of(word), kind.colour.lightened(lightness(stages, word.stage())),
            &kind == &message_kind};
  }

  Band predicted() {
    const Simulation simulation = simulate(trace_.schedule, measured_costs(trace_), {.links = {}, .keep_slots = true});
    double begin = simulation.makespan;
    for (const auto& slots : simulation.slots)
      for (const Slot& slot : slots) begin = std::min(begin, slot.begin);

    Band band{say("predicted ", shortened(account_.predicted_ms), " ms, idle ",
                  shortened(100 * account_.bubble_predicted, 1), " %"),
              simulation.makespan, {}};
    for (std::size_t rank = 0; rank < simulation.slots.size(); ++rank) {
      const auto stages = stages_of(trace_.schedule, Rank(static_cast<std::int32_t>(rank)));
      band.rows.push_back(row_of(rank, stages, 1));
      for (const Slot& slot : simulation.slots[rank]) {
        Piece piece = piece_of(slot.instruction, stages);
        piece.begin = slot.begin - begin;
        piece.end = slot.end - begin;
        band.rows.back().pieces.push_back(std::move(piece));
      }
    }
    return band;
  }

  Band measured() {
    const WorldStep step = median_step(trace_);
    const auto ms_since_begin = [&](std::int64_t ns) {
      return static_cast<double>(std::clamp(ns, step.begin_ns, step.end_ns) - step.begin_ns) / 1e6;
    };
    Band band{say("measured ", shortened(account_.measured_ms), " ms, idle ",
                  shortened(100 * account_.bubble_measured, 1), " %"),
              ms_since_begin(step.end_ns), {}};
    for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
      const auto stages = stages_of(trace_.schedule, pipeline_rank(trace_, rank));
      band.rows.push_back(row_of(rank, stages, trace_.replicas));
      for (const Span& span : step.ranks[rank]->spans) {
        const double begin = ms_since_begin(span.begin_ns);
        const double end = ms_since_begin(span.end_ns);
        // Hand-over that no eye could see stays out of the legend too.
        const bool is_visible = span.activity != Activity::communicate || x_of(end) - x_of(begin) >= 0.4;
        if (span.activity == Activity::wait || end <= begin || !is_visible) continue;
        Piece piece = piece_of(span.instruction, stages);
        piece.begin = begin;
        piece.end = end;
        band.rows.back().pieces.push_back(std::move(piece));
      }
    }
    return band;
  }

  void draw_header() {
    const Schedule& schedule = trace_.schedule;
    canvas_.text({left, 30},
                 say(schedule.name.empty() ? "schedule" : schedule.name, ": one training step, predicted and measured"),
                 {.size = 17, .is_bold = true});
    std::string facts = say(schedule.rank_count(), " pipeline ranks, ", schedule.stage_count(), " stages, ",
                            schedule.micro_batches, " micro-batches");
    if (trace_.replicas > 1) facts += say(", ", trace_.replicas, " replicas");
    canvas_.text({left, 50}, say(facts, "; step ", account_.step, ", the median of those traced"),
                 {.size = 12, .colour = quiet});

    std::sort(kinds_.begin(), kinds_.end(),
              [](const Kind* a, const Kind* b) { return place_in_legend(a) < place_in_legend(b); });
    double x = left;
    for (const Kind* kind : kinds_) {
      canvas_.rectangle({{x, 63}, 18, 12}, kind->colour.text(), border);
      canvas_.text({x + 24, 73}, kind->name, {.size = 12});
      x += 24 + 6.6 * static_cast<double>(std::string_view(kind->name).size()) + 18;
    }
    canvas_.rectangle({{x, 63}, 18, 12}, "#ffffff", border);
    canvas_.text({x + 24, 73}, "idle", {.size = 12});
    if (schedule.stage_count() > schedule.rank_count())
      canvas_.text({right, 73}, "lighter: a later stage of the same rank",
                   {.size = 12, .anchor = Anchor::end, .colour = quiet});
  }

  static std::size_t place_in_legend(const Kind* kind) {
    constexpr std::array order = {&forward_kind, &backward_kind, &input_grad_kind,
                                  &weight_grad_kind, &update_kind, &message_kind};
    return static_cast<std::size_t>(std::find(order.begin(), order.end(), kind) - order.begin());
  }

  void draw_axis(Point origin) {
    // At most ten steps of 1, 2 or 5 times a power of ten.
    const double rough = longest_ > 0 ? longest_ / 10 : 1;
    const double power = std::pow(10, std::floor(std::log10(rough)));
    double tick = 10 * power;
    for (const double factor : {5.0, 2.0, 1.0})
      if (factor * power >= rough) tick = factor * power;
    const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(tick) + 1e-9)));

    for (int i = 0; i * tick <= longest_ * (1 + 1e-9); ++i) {
      const double x = x_of(i * tick);
      canvas_.line({x, header_height + band_title_height - 4}, {x, origin.y}, {.colour = "#e6e6e6"});
      canvas_.line({x, origin.y}, {x, origin.y + 5}, {});
      canvas_.text({x, origin.y + 19}, shortened(i * tick, decimals), {.size = 12, .anchor = Anchor::middle});
    }
    canvas_.line(origin, {right, origin.y}, {});
    canvas_.text({right, origin.y + 36}, "time in ms", {.size = 12, .anchor = Anchor::end});
  }

  void draw_band(const Band& band, double y) {
    canvas_.text({left, y + 16}, band.title, {.size = 13, .is_bold = true});
    y += band_title_height;
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
    canvas_.rectangle({{left, y}, end - left, height}, "#ffffff", faint);
    for (const Piece& piece : row.pieces) {
      const double x = x_of(piece.begin);
      const double width = x_of(piece.end) - x;
      canvas_.rectangle({{x, y}, width, height}, piece.colour.text(), width >= 2.5 ? border : "",
                        say(piece.word, ": ", shortened(piece.begin, 3), " to ", shortened(piece.end, 3), " ms"));
      if (digit_width * static_cast<double>(piece.label.size()) + 3 <= width)
        canvas_.text({x + width / 2, middle + 4}, piece.label, {.size = label_size, .anchor = Anchor::middle});
    }
  }

  const Trace& trace_;
  const Account account_;
  std::vector<const Kind*> kinds_;  // those that occur
  std::vector<Band> bands_;
  double longest_ = 0;
  double row_height_ = 0;
  SvgCanvas canvas_;
};

}  // namespace

std::string step_svg(const Trace& trace) { return Picture(trace).draw(); }

}  // namespace penstock
