#include "penstock/trace/schedule_json.h"

#include <nlohmann/json.hpp>

#include "penstock/base/error.h"
#include "penstock/base/json_text.h"
#include "penstock/trace/simulated.h"

namespace penstock {
namespace {

using nlohmann::ordered_json;

ordered_json head(const Simulated& simulated, const StageCosts& costs) {
  const Schedule& schedule = simulated.schedule;
  const Simulation& figures = simulated.simulation;
  std::vector<std::int32_t> rank_of_stage;
  for (const Rank rank : schedule.rank_of_stage) rank_of_stage.push_back(rank.value());
  ordered_json given = {{"forward", costs.forward},         {"input_grad", costs.input_grad},
                        {"weight_grad", costs.weight_grad}, {"update", costs.update},
                        {"message", costs.message},         {"weight_share", costs.weight_share},
                        {"overhead", costs.overhead}};
  if (!costs.weight_grad_fused.empty()) given["weight_grad_fused"] = costs.weight_grad_fused;
  if (!costs.backward.empty()) given["backward"] = costs.backward;
  return {{"format", "penstock schedule"},
          {"version", schedule_json_version},
          {"name", schedule.name},
          {"ranks", schedule.rank_count()},
          {"stages", schedule.stage_count()},
          {"micro_batches", schedule.micro_batches},
          {"rank_of_stage", rank_of_stage},
          {"costs", given},
          {"makespan", figures.makespan},
          {"span", figures.span},
          {"bubble_makespan", figures.bubble_makespan},
          {"bubble_span", figures.bubble_span},
          {"peak_activations", figures.peak_activations},
          {"busy", figures.busy}};
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

}  // namespace

std::string schedule_json(const Schedule& schedule, const StageCosts& costs) {
  const Simulated simulated(schedule, costs);
  const auto needs = needs_of_slots(simulated);
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

}  // namespace penstock
