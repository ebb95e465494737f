// Describes a deadlock: the ranks that wait for each other. Inside this module only.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "penstock/schedule/replay.h"
#include "penstock/schedule/violation.h"

namespace penstock {

/// How ranks wait in the replay that came to a halt.
struct Waiting {
  std::string title = "deadlock";
  /// The next instruction that must run before an event happens; none if no instruction gives the event.
  std::function<std::optional<GridCell>(std::size_t event)> obstacle;
  /// The text of an instruction that waits.
  std::function<std::string(const Instruction&)> text = [](const Instruction& waits) { return to_string(waits); };
};

/// Follows the ranks that wait for each other until a rank is reached for the second time. That cycle is the deadlock,
/// and the cell of the result is on it. `progress` has not finished.
Violation deadlock(const Schedule& schedule, const Reach& progress, const Waiting& waiting);

/// The first instruction for which `applies(instruction)` is true; none if there is none.
template <class Applies>
std::optional<GridCell> find_instruction(const Schedule& schedule, Applies&& applies) {
  for (std::size_t rank = 0; rank < schedule.orders.size(); ++rank)
    for (std::size_t k = 0; k < schedule.orders[rank].size(); ++k)
      if (applies(schedule.orders[rank][k]))
        return GridCell{Rank(static_cast<std::int32_t>(rank)), static_cast<int>(k)};
  return std::nullopt;
}

/// The instruction that produces `event`.
inline std::optional<GridCell> find_producer(const Schedule& schedule, const Dependencies& dependencies,
                                             std::size_t event) {
  return find_instruction(schedule, [&](const Instruction& instruction) {
    bool gives = false;
    dependencies.for_each_given(instruction,
                                [&](const Event& given) { gives = gives || dependencies.index(given) == event; });
    return gives;
  });
}

}  // namespace penstock
