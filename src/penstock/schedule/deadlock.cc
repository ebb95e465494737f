#include "penstock/schedule/deadlock.h"

#include <vector>

#include "penstock/base/error.h"

namespace penstock {

Violation deadlock(const Schedule& schedule, const Reach& progress, const Waiting& waiting) {
  const auto instruction_at = [&](const GridCell& cell) -> const Instruction& {
    return schedule.orders[cell.rank.index()][static_cast<std::size_t>(cell.position)];
  };
  std::size_t rank = 0;
  while (static_cast<std::size_t>(progress.reached[rank]) == schedule.orders[rank].size()) ++rank;

  constexpr std::size_t most_named = 6;
  std::vector<bool> seen(schedule.orders.size(), false);
  GridCell stuck{Rank(static_cast<std::int32_t>(rank)), progress.reached[rank]};
  std::string reason = say(waiting.title, ": rank ", rank, " is at ", waiting.text(instruction_at(stuck)));
  for (std::size_t named = 0; !seen[rank]; ++named) {
    seen[rank] = true;
    const std::optional<GridCell> needed = waiting.obstacle(progress.missing[rank]);
    if (!needed) return {reason + ", which needs what no instruction gives", stuck};
    stuck = {needed->rank, progress.reached[needed->rank.index()]};
    if (needed->rank.index() == rank)
      return {reason + say(", which needs ", to_string(instruction_at(*needed)), ", later on that rank"), stuck};
    if (named < most_named)
      reason += say(", which needs ", to_string(instruction_at(*needed)), " of rank ", needed->rank.value(),
                    ", which is at ", waiting.text(instruction_at(stuck)));
    else if (named == most_named)
      reason += ", and so on";
    rank = needed->rank.index();
  }
  return {reason, stuck};
}

}  // namespace penstock
