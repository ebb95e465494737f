#include <algorithm>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/trace/complete_steps.h"
#include "penstock/trace/schedule_picture.h"
#include "penstock/trace/simulated.h"
#include "penstock/trace/timeline.h"

namespace penstock {
namespace {

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
  const double zero = simulated.first_begin();
  Row row = row_of(rank.index(), stages);
  row.note = shortened(simulated.simulation.peak_activations[rank.index()]);
  for (const Slot& slot : slots)
    if (slot.end > slot.begin)
      row.pieces.push_back(piece_of(slot.instruction, stages, {slot.begin - zero, slot.end - zero}));
  for (const auto& [first, second] : overlap_pairs(slots))
    row.frames.push_back({slots[first].begin - zero, slots[second].end - zero});
  return row;
}

}  // namespace

std::string schedule_svg(const Schedule& schedule, const StageCosts& costs) {
  const Simulated simulated(schedule, costs);
  require<ConfigError>(simulated.slot_count() <= most_boxes_of_svg, "a picture of ", simulated.slot_count(),
                       " boxes: at most ", most_boxes_of_svg,
                       " can be distinguished in an SVG; draw fewer micro-batches, or use HTML, which zooms");
  Band band{{}, simulated.simulation.makespan, {}};
  for (Rank rank(0); rank.value() < schedule.rank_count(); rank = rank.next())
    band.rows.push_back(row_of(simulated, rank));
  return draw({.title = simulated.title(),
               .facts = {simulated.figures(), described(costs)},
               .bands = {std::move(band)},
               .time_unit = {},
               .notes = "peak live",
               .width = width_for(simulated)});
}

}  // namespace penstock
