#include "penstock/trace/simulated.h"

#include <algorithm>
#include <limits>

#include "penstock/base/error.h"
#include "penstock/schedule/lower.h"
#include "penstock/trace/schedule_picture.h"
#include "penstock/trace/svg_canvas.h"

namespace penstock {
namespace {

std::string exact_percent(double share) { return shortened(100 * share, 2) + " %"; }

}  // namespace

std::size_t Simulated::slot_count() const {
  std::size_t count = 0;
  for (const auto& slots : simulation.slots) count += slots.size();
  return count;
}

double Simulated::first_begin() const {
  double begin = std::numeric_limits<double>::infinity();
  for (const auto& slots : simulation.slots)
    if (!slots.empty()) begin = std::min(begin, slots.front().begin);
  return begin;
}

std::string Simulated::title() const {
  std::string text = say(schedule.name.empty() ? "schedule" : schedule.name, ": p = ", schedule.rank_count());
  const bool is_even = schedule.stage_count() % schedule.rank_count() == 0;
  text += is_even ? say(", v = ", schedule.stage_count() / schedule.rank_count())
                  : say(", ", schedule.stage_count(), " stages");
  return say(text, ", m = ", schedule.micro_batches);
}

std::string Simulated::figures() const {
  const auto& peaks = simulation.peak_activations;
  return say("makespan ", shortened(simulation.makespan, 3), "; bubble ", exact_percent(simulation.bubble_makespan),
             " of the makespan, ", exact_percent(simulation.bubble_span), " of the span; at most ",
             shortened(*std::max_element(peaks.begin(), peaks.end())), " live activations on a rank, in ",
             activation_unit);
}

std::string live_activations(const Schedule& schedule, StageCosts costs) {
  const auto listed = [](const std::vector<double>& peaks) {
    std::string text;
    for (const double peak : peaks) text += ' ' + shortened(peak);
    return text;
  };
  const std::vector<double> peaks = simulate(schedule, costs).peak_activations;
  costs.weight_share = 1;
  const std::vector<double> until_w = simulate(schedule, costs).peak_activations;
  return say("live activations at most", listed(peaks), " per rank, in ", activation_unit,
             until_w == peaks ? "" : "; counted in full until W:" + listed(until_w));
}

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

std::vector<std::vector<std::size_t>> needs_of_slots(const Simulated& simulated) {
  // Without messages, instructions depend directly on the instructions of other ranks, which have slots.
  const Dependencies dependencies(strip(simulated.schedule), links_of(simulated.schedule));
  std::vector<std::size_t> producer(dependencies.event_count());
  std::size_t slot_index = 0;
  for (const auto& slots : simulated.simulation.slots)
    for (const Slot& slot : slots) {
      dependencies.for_each_given(slot.instruction,
                                  [&](const Event& event) { producer[dependencies.index(event)] = slot_index; });
      ++slot_index;
    }

  std::vector<std::vector<std::size_t>> needs;
  needs.reserve(slot_index);
  for (const auto& slots : simulated.simulation.slots)
    for (const Slot& slot : slots) {
      std::vector<std::size_t>& needed = needs.emplace_back();
      dependencies.for_each_predecessor(
          slot.instruction, [&](const Event& event) { needed.push_back(producer[dependencies.index(event)]); });
      std::sort(needed.begin(), needed.end());
      needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    }
  return needs;
}

std::vector<std::pair<std::size_t, std::size_t>> overlap_pairs(const std::vector<Slot>& slots) {
  std::vector<std::pair<std::size_t, std::size_t>> pairs;
  for (std::size_t i = 0; i + 1 < slots.size(); ++i)
    if (slots[i].instruction.overlaps_next()) pairs.emplace_back(i, i + 1);
  return pairs;
}

}  // namespace penstock
