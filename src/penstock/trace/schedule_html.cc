#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json_text.h"
#include "penstock/trace/complete_steps.h"
#include "penstock/trace/schedule_json.h"
#include "penstock/trace/schedule_page.h"
#include "penstock/trace/schedule_picture.h"
#include "penstock/trace/simulated.h"
#include "penstock/trace/timeline.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

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

}  // namespace

std::string schedule_html(const Schedule& schedule, const StageCosts& costs) {
  const Simulated simulated(schedule, costs);
  require<ConfigError>(simulated.slot_count() <= most_boxes_of_html, "a page of ", simulated.slot_count(),
                       " boxes: a browser takes ", most_boxes_of_html, "; show fewer micro-batches, or take JSON");
  return page_of(inside_script(look_of(simulated, costs)), inside_script(schedule_json(schedule, costs)));
}

}  // namespace penstock
