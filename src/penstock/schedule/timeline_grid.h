// A schedule as a table on the terminal: one row per rank, one column per unit of time (every instruction takes one).
#pragma once

#include <optional>
#include <string>

#include "penstock/schedule/order.h"

namespace penstock {

struct GridOptions {
  std::optional<GridCell> marked;  // drawn as >0B2<, the rest of the grid stays readable
  int max_columns = 0;             // 0: all; otherwise longer rows are cut with "..."
};

/// For example generate("1f1b", {.ranks = 2, .micro_batches = 4}):
///
///   rank 0 | 0F0 0F1  .  0B0 0F2 0B1 0F3 0B2  .  0B3
///   rank 1 |  .  1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3  .
///
/// Messages are not drawn. A schedule that deadlocks is drawn as far as it gets, then each rank's rest in order.
std::string timeline_grid(const Schedule& schedule, const GridOptions& options = {});

}  // namespace penstock
