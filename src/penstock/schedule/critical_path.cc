#include "penstock/schedule/critical_path.h"

#include <algorithm>

#include "penstock/schedule/lower.h"

namespace penstock {
namespace {

/// Slots are numbered over all ranks, rank after rank.
class SlotGraph {
 public:
  /// Without messages, instructions depend directly on the instructions of other ranks, which have slots.
  SlotGraph(const Schedule& schedule, const Simulation& simulation)
      : simulation_(simulation),
        dependencies_(strip(schedule), links_of(schedule)),
        producer_(dependencies_.event_count()) {
    std::size_t index = 0;
    for (const auto& slots : simulation.slots) {
      first_.push_back(index);
      for (const Slot& slot : slots) {
        dependencies_.for_each_given(slot.instruction,
                                     [&](const Event& event) { producer_[dependencies_.index(event)] = index; });
        ++index;
      }
    }
  }

  std::vector<std::size_t> needs(const Slot& slot) const {
    std::vector<std::size_t> needed;
    dependencies_.for_each_predecessor(
        slot.instruction, [&](const Event& event) { needed.push_back(producer_[dependencies_.index(event)]); });
    std::sort(needed.begin(), needed.end());
    needed.erase(std::unique(needed.begin(), needed.end()), needed.end());
    return needed;
  }

  std::size_t rank_of(std::size_t index) const {
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), index) - first_.begin()) - 1;
  }
  const Slot& slot(std::size_t index) const {
    const std::size_t rank = rank_of(index);
    return simulation_.slots[rank][index - first_[rank]];
  }

 private:
  const Simulation& simulation_;
  Dependencies dependencies_;
  std::vector<std::size_t> producer_;  // of each event
  std::vector<std::size_t> first_;     // the first slot of each rank
};

/// The slot that ends last; none if there are no slots.
const Slot* last_slot(const Simulation& simulation, std::size_t& rank) {
  const Slot* last = nullptr;
  for (std::size_t r = 0; r < simulation.slots.size(); ++r)
    if (!simulation.slots[r].empty() && (!last || simulation.slots[r].back().end > last->end)) {
      last = &simulation.slots[r].back();
      rank = r;
    }
  return last;
}

}  // namespace

std::vector<std::vector<std::size_t>> needs_of_slots(const Schedule& schedule, const Simulation& simulation) {
  const SlotGraph graph(schedule, simulation);
  std::vector<std::vector<std::size_t>> needs;
  for (const auto& slots : simulation.slots)
    for (const Slot& slot : slots) needs.push_back(graph.needs(slot));
  return needs;
}

std::vector<CriticalSlot> critical_path(const Schedule& schedule, const Simulation& simulation) {
  const SlotGraph graph(schedule, simulation);
  const double rounding = 1e-9 * simulation.makespan;
  std::vector<CriticalSlot> path;
  std::size_t rank = 0;
  const Slot* at = last_slot(simulation, rank);
  while (at) {
    path.push_back({Rank(static_cast<std::int32_t>(rank)), *at});
    const Slot* const before = at == simulation.slots[rank].data() ? nullptr : at - 1;
    if (before && before->end >= at->begin - rounding) {
      at = before;
      continue;
    }
    const Slot* sender = nullptr;
    std::size_t sending_rank = rank;
    for (const std::size_t need : graph.needs(*at)) {
      const std::size_t other = graph.rank_of(need);
      if (other == rank || (sender && graph.slot(need).end <= sender->end)) continue;
      sender = &graph.slot(need);
      sending_rank = other;
    }
    path.back().waits_for_message = sender != nullptr;
    at = sender ? sender : before;
    rank = sending_rank;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace penstock
