#include "penstock/trace/pictures.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "penstock/base/clock.h"
#include "penstock/base/error.h"
#include "penstock/base/json.h"
#include "penstock/base/text.h"
#include "penstock/schedule/critical_path.h"
#include "penstock/trace/account.h"
#include "penstock/trace/complete_steps.h"
#include "penstock/trace/timeline.h"

namespace penstock {

/// schedule_page.html: the page of schedule_html(), with the placeholders @LOOK@ and @SCHEDULE@ for JSON.
extern const std::string_view schedule_page;
namespace {

/// A schedule and its simulation, with the time of every instruction. The constructor throws like simulate().
struct Simulated {
  const Schedule& schedule;  // must outlive this
  Simulation simulation;

  Simulated(const Schedule& simulated, const StageCosts& costs)
      : schedule(simulated), simulation(simulate(simulated, costs, {.links = {}, .keep_slots = true})) {}

  std::size_t slot_count() const {
    std::size_t count = 0;
    for (const auto& slots : simulation.slots) count += slots.size();
    return count;
  }

  /// "1f1b: p = 4, v = 1, m = 8".
  std::string title() const {
    const bool is_even = schedule.stage_count() % schedule.rank_count() == 0;
    return say(schedule.name.empty() ? "schedule" : schedule.name, ": p = ", schedule.rank_count(),
               is_even ? say(", v = ", schedule.stage_count() / schedule.rank_count())
                       : say(", ", schedule.stage_count(), " stages"),
               ", m = ", schedule.micro_batches);
  }

  /// Makespan, bubbles and peak activations, in one line.
  std::string figures() const {
    const auto exact_percent = [](double share) { return shortened(100 * share, 2) + " %"; };
    const auto& peaks = simulation.peak_activations;
    return say("makespan ", shortened(simulation.makespan, 3), "; bubble ", exact_percent(simulation.bubble_makespan),
               " of the makespan, ", exact_percent(simulation.bubble_span), " of the span; at most ",
               shortened(*std::max_element(peaks.begin(), peaks.end())), " live activations on a rank, in ",
               activation_unit);
  }
};

/// The first begin of all slots, which is time 0 of a picture.
double first_begin(const Simulation& simulation) {
  double begin = std::numeric_limits<double>::infinity();
  for (const auto& slots : simulation.slots)
    if (!slots.empty()) begin = std::min(begin, slots.front().begin);
  return begin;
}

/// "F = 1, I = 1, W = 1", and all other costs that differ from StageCosts::unit(). Costs that differ by stage are shown
/// as a range.
std::string described(const StageCosts& costs) {
  const auto range = [](const std::vector<double>& list) {
    const auto [least, most] = std::minmax_element(list.begin(), list.end());
    return *least == *most ? shortened(*least, 3) : say(shortened(*least, 3), " to ", shortened(*most, 3));
  };
  std::string text =
      say("F = ", range(costs.forward), ", I = ", range(costs.input_grad), ", W = ", range(costs.weight_grad));
  if (!costs.weight_grad_fused.empty()) text += say(", fused W = ", range(costs.weight_grad_fused));
  if (!costs.backward.empty()) text += say(", B = ", range(costs.backward));
  if (const std::string update = range(costs.update); update != "0") text += say(", update = ", update);
  if (costs.message > 0) text += say(", message = ", shortened(costs.message, 3));
  if (costs.overhead > 0) text += say(", overhead = ", shortened(costs.overhead, 3));
  if (costs.weight_share != StageCosts::unit().weight_share)
    text += say(", weight share = ", shortened(costs.weight_share, 3));
  return text;
}

/// Wide enough that the shortest instruction takes its label, within what a page can show.
double width_for(const Simulated& simulated) {
  constexpr double least = 760;
  constexpr double most = 2400;
  double shortest = std::numeric_limits<double>::infinity();
  for (const auto& slots : simulated.simulation.slots)
    for (const Slot& slot : slots)
      if (is_compute(slot.instruction.op()) && slot.end > slot.begin)
        shortest = std::min(shortest, slot.end - slot.begin);
  const std::size_t digits = std::to_string(simulated.schedule.micro_batches - 1).size();
  const double box = std::max(18.0, 6.0 * static_cast<double>(digits) + 5);
  return std::clamp(simulated.simulation.makespan / shortest * box, least, most);
}

Row row_of(const Simulated& simulated, Rank rank) {
  const std::vector<StageId> stages = stages_of(simulated.schedule, rank);
  const std::vector<Slot>& slots = simulated.simulation.slots[rank.index()];
  const double zero = first_begin(simulated.simulation);
  Row row = row_of(rank.index(), stages);
  row.note = shortened(simulated.simulation.peak_activations[rank.index()]);
  for (const Slot& slot : slots)
    if (slot.end > slot.begin)
      row.pieces.push_back(piece_of(slot.instruction, stages, {slot.begin - zero, slot.end - zero}));
  for (std::size_t i = 0; i + 1 < slots.size(); ++i)
    if (slots[i].instruction.overlaps_next()) row.frames.push_back({slots[i].begin - zero, slots[i + 1].end - zero});
  return row;
}

using nlohmann::ordered_json;

ordered_json head(const Simulated& simulated, const StageCosts& costs) {
  const Schedule& schedule = simulated.schedule;
  const Simulation& figures = simulated.simulation;
  const auto numbers = [](const std::vector<Rank>& ranks) {
    std::vector<std::int32_t> list;
    for (const Rank rank : ranks) list.push_back(rank.value());
    return list;
  };
  ordered_json given = {{"forward", costs.forward},         {"input_grad", costs.input_grad},
                        {"weight_grad", costs.weight_grad}, {"update", costs.update},
                        {"message", costs.message},         {"weight_share", costs.weight_share},
                        {"overhead", costs.overhead}};
  if (!costs.weight_grad_fused.empty()) given["weight_grad_fused"] = costs.weight_grad_fused;
  if (!costs.backward.empty()) given["backward"] = costs.backward;
  ordered_json made = {{"format", "penstock schedule"},
                       {"version", schedule_json_version},
                       {"name", schedule.name},
                       {"ranks", schedule.rank_count()},
                       {"stages", schedule.stage_count()},
                       {"micro_batches", schedule.micro_batches},
                       {"rank_of_stage", numbers(schedule.rank_of_stage)},
                       {"costs", given},
                       {"makespan", figures.makespan},
                       {"span", figures.span},
                       {"bubble_makespan", figures.bubble_makespan},
                       {"bubble_span", figures.bubble_span},
                       {"peak_activations", figures.peak_activations},
                       {"busy", figures.busy}};
  for (const std::vector<Rank>& ranks : schedule.more_pipelines) made["more_pipelines"].push_back(numbers(ranks));
  if (!schedule.pipeline_of.empty()) made["pipeline_of_micro_batch"] = schedule.pipeline_of;
  return made;
}

ordered_json document(std::size_t rank, const Slot& slot, const std::vector<std::size_t>& needs) {
  const Instruction& instruction = slot.instruction;
  ordered_json made = {{"rank", rank},
                       {"word", to_string(instruction)},
                       {"op", to_string(instruction.op())},
                       {"stage", instruction.stage().value()}};
  if (is_compute(instruction.op())) made["micro_batches"] = {instruction.first().value(), instruction.last().value()};
  made["begin"] = slot.begin;
  made["end"] = slot.end;
  made["needs"] = needs;
  if (instruction.overlaps_next()) made["overlaps_next"] = true;
  return made;
}

/// `text` for a script element of a page: no text in it can end the script.
std::string inside_script(std::string text) {
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at + 1))
    text.replace(at, 1, "\\u003c");
  return text;
}

/// Titles, rows and colours, which are the same as in the SVG.
std::string look_of(const Simulated& simulated, const StageCosts& costs) {
  const Schedule& schedule = simulated.schedule;
  ordered_json look = {{"title", simulated.title()},
                       {"facts", {simulated.figures(), described(costs)}},
                       {"idle", idle_colour.text()},
                       {"kinds", ordered_json::object()},
                       {"rows", ordered_json::array()}};
  constexpr Op drawn[] = {Op::forward, Op::backward, Op::input_grad, Op::weight_grad, Op::step};
  std::vector<std::vector<StageId>> stages;
  for (Rank rank(0); rank.value() < schedule.rank_count(); rank = rank.next()) {
    stages.push_back(stages_of(schedule, rank));
    const Row row = row_of(rank.index(), stages.back());
    look["rows"].push_back({{"name", row.name}, {"place", row.place}});
  }
  for (const Op op : drawn) {
    ordered_json shades = ordered_json::array();
    for (StageId stage(0); stage.value() < schedule.stage_count(); stage = stage.next())
      shades.push_back(shade_of(kind_of(op), stages[schedule.rank_of(stage).index()], stage).text());
    look["kinds"][to_string(op)] = {{"name", kind_of(op).name}, {"colour_of_stage", std::move(shades)}};
  }
  return json_text(look);
}

/// The page from its template. The placeholders of the template are in this order.
std::string page_of(const std::string& look, const std::string& schedule) {
  constexpr std::string_view look_mark = "@LOOK@";
  constexpr std::string_view schedule_mark = "@SCHEDULE@";
  const std::size_t look_at = schedule_page.find(look_mark);
  const std::size_t schedule_at = schedule_page.find(schedule_mark);
  const std::size_t look_end = look_at + look_mark.size();
  return say(schedule_page.substr(0, look_at), look, schedule_page.substr(look_end, schedule_at - look_end), schedule,
             schedule_page.substr(schedule_at + schedule_mark.size()));
}

constexpr double drawing_width = 980;

Band predicted(const Trace& trace, const Account& account) {
  const Simulation simulation =
      simulate(trace.schedule, measured_costs(trace), {.links = executed_links(trace.schedule), .keep_slots = true});
  const double begin = first_begin(simulation);
  Band band{say("predicted with the times measured below: ", shortened(account.predicted_ms), " ms, idle ",
                shortened(100 * account.bubble_predicted, 1), " %"),
            simulation.makespan,
            {}};
  for (std::size_t rank = 0; rank < simulation.slots.size(); ++rank) {
    const auto stages = stages_of(trace.schedule, Rank(static_cast<std::int32_t>(rank)));
    band.rows.push_back(row_of(rank, stages));
    for (const Slot& slot : simulation.slots[rank])
      band.rows.back().pieces.push_back(piece_of(slot.instruction, stages, {slot.begin - begin, slot.end - begin}));
  }
  return band;
}

Band measured(const Trace& trace, const Account& account) {
  const WorldStep step = median_step(trace);
  const auto ms_since_begin = [&](std::int64_t ns) {
    return to_ms(std::clamp(ns, step.begin_ns, step.end_ns) - step.begin_ns);
  };
  Band band{
      say("measured ", shortened(account.measured_ms), " ms, idle ", shortened(100 * account.bubble_measured, 1), " %"),
      ms_since_begin(step.end_ns),
      {}};
  // Messages whose boxes would be too narrow to see are left out, also from the legend.
  const double least = 0.4 / drawing_width * std::max(account.predicted_ms, account.measured_ms);
  for (std::size_t rank = 0; rank < step.ranks.size(); ++rank) {
    const auto stages = stages_of(trace.schedule, pipeline_rank(trace, rank));
    Row row = row_of(rank, stages);
    if (trace.replicas > 1) row.place += say(", replica ", rank % static_cast<std::size_t>(trace.replicas));
    for (const Span& span : step.ranks[rank]->spans) {
      const TimeSpan time{ms_since_begin(span.begin_ns), ms_since_begin(span.end_ns)};
      const bool is_visible = span.activity != Activity::communicate || time.end - time.begin >= least;
      if (span.activity == Activity::wait || time.end <= time.begin || !is_visible) continue;
      row.pieces.push_back(piece_of(span.instruction, stages, time));
    }
    band.rows.push_back(std::move(row));
  }
  return band;
}

}  // namespace

std::string live_activations(const Schedule& schedule, double weight_share) {
  const auto text_of = [](double peak) { return shortened(peak); };
  const std::vector<double> peaks = peak_activations(schedule, weight_share);
  const std::vector<double> until_w = peak_activations(schedule, /*weight_share=*/1);
  return say("live activations at most ", listed(peaks, " ", text_of), " per rank, in ", activation_unit,
             until_w == peaks ? "" : "; counted in full until W: " + listed(until_w, " ", text_of));
}

std::string schedule_svg(const Schedule& schedule, const StageCosts& costs, const PictureOptions& options) {
  const Simulated simulated(schedule, costs);
  require<ConfigError>(simulated.slot_count() <= most_boxes_of_svg, "a picture of ", simulated.slot_count(),
                       " boxes: at most ", most_boxes_of_svg,
                       " can be distinguished in an SVG; draw fewer micro-batches, or use HTML, which zooms");
  Band band{{}, simulated.simulation.makespan, {}};
  for (Rank rank(0); rank.value() < schedule.rank_count(); rank = rank.next())
    band.rows.push_back(row_of(simulated, rank));
  if (options.marks_critical_path) {
    const double zero = first_begin(simulated.simulation);
    for (const CriticalSlot& one : critical_path(schedule, simulated.simulation))
      if (one.slot.end > one.slot.begin)
        band.rows[one.rank.index()].path.push_back({one.slot.begin - zero, one.slot.end - zero});
  }
  return draw({.title = simulated.title(),
               .facts = {simulated.figures(), described(costs)},
               .bands = {std::move(band)},
               .time_unit = {},
               .notes = "peak live",
               .width = width_for(simulated)});
}

std::string schedule_json(const Schedule& schedule, const StageCosts& costs) {
  const Simulated simulated(schedule, costs);
  const auto needs = needs_of_slots(schedule, simulated.simulation);
  std::string text = "{\n";
  const ordered_json figures = head(simulated, costs);
  for (const auto& [key, value] : figures.items()) text += say("\"", key, "\": ", json_text(value), ",\n");
  text += "\"slots\": [";
  std::size_t index = 0;
  for (std::size_t rank = 0; rank < simulated.simulation.slots.size(); ++rank)
    for (const Slot& slot : simulated.simulation.slots[rank]) {
      text += index > 0 ? ",\n" : "\n";
      text += json_text(document(rank, slot, needs[index++]));
    }
  return text + "\n]\n}\n";
}

std::string schedule_html(const Schedule& schedule, const StageCosts& costs) {
  const Simulated simulated(schedule, costs);
  require<ConfigError>(simulated.slot_count() <= most_boxes_of_html, "a page of ", simulated.slot_count(),
                       " boxes: a browser takes ", most_boxes_of_html, "; show fewer micro-batches, or take JSON");
  return page_of(inside_script(look_of(simulated, costs)), inside_script(schedule_json(schedule, costs)));
}

std::string step_svg(const Trace& trace) {
  const Account figures = account(trace);
  const Schedule& schedule = trace.schedule;
  std::string facts = say(schedule.rank_count(), " pipeline ranks, ", schedule.stage_count(), " stages, ",
                          schedule.micro_batches, " micro-batches");
  if (trace.replicas > 1) facts += say(", ", trace.replicas, " replicas");
  facts += say("; step ", figures.step, ", the median of those traced");
  return draw(
      {.title = say(schedule.name.empty() ? "schedule" : schedule.name, ": one training step, predicted and measured"),
       .facts = {facts},
       .bands = {predicted(trace, figures), measured(trace, figures)},
       .time_unit = "ms",
       .notes = {},
       .width = drawing_width});
}

}  // namespace penstock
